#!/usr/bin/env bash
# The whole job, with the commands a user would type. `make demo` runs it; results go to build/demo/.
set -euo pipefail
out=build/demo
mkdir -p "$out"

say() { printf '\n\033[1m# %s\033[0m\n' "$1"; }
run() { printf '$ %s\n' "$*"; "$@"; }

say "1. A schedule for 8 ranks in which rank 3 comes late"
run stragglar synth -n 8 --late 3 -o "$out/s.json"

say "2. Every contribution followed symbolically, and the rounds against the lower bound"
run stragglar check "$out/s.json"

say "3. Lowered to MSCCL XML; the file is read back and replayed before it is written"
run stragglar lower "$out/s.json" --to msccl-xml -o "$out/s.xml"
run stragglar check "$out/s.xml"

say "4. On 8 real MPI processes, rank 3 coming 200 ms late, beside MPI's own Allreduce in the same run"
run stragglar run "$out/s.json" --on mpi --bytes 64MiB --late-by 200ms

say "5. What a model says for 8 GPUs on an NVSwitch (alpha 3 us, 450 GiB/s, 1 GiB)"
run stragglar cost "$out/s.json" --bytes 1GiB --alpha 3us --bandwidth 450GiB/s --delay 5ms

say "6. The steps"
run stragglar show "$out/s.json"
