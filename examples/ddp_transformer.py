"""Trains a small transformer with DDP on gloo, a rank slowed in every step: plain, eager, and as planned.

    python examples/ddp_transformer.py --ranks 4 --folder /tmp/run    # starts the ranks itself
    torchrun --nproc-per-node 4 examples/ddp_transformer.py           # or takes those of torchrun
    python examples/ddp_transformer.py --ranks 4 --kill 2             # rank 2 dies: all others name it

The text is made here from a seed. Three trainings begin with the same weights and see the same text and
delays: plain DDP; the hook in eager mode, whose arrivals are recorded; and the hook with the schedule that
`stragglar plan --arrivals` makes of that record. The losses of every step must be equal within rounding,
and the replicas bit for bit.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._dynamo  # DDP imports it: once here, not in every forked rank
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stragglar.backends.torch import ArrivalRecorder, StragglarState, stragglar_hook
from stragglar.cli.main import run as stragglar
from stragglar.schedules import Schedule, load_schedule
from stragglar.synth import Request, synthesize

VOCABULARY, CONTEXT, WIDTH, BATCH = 32, 24, 96, 4
STICKY, USUAL = 2, 0.8
"""For so many steps the same rank is late; then one is drawn, the usual one so often."""

BUCKET_BYTES = 1 << 19
LINK = ("--alpha", "50us", "--bandwidth", "1GiB/s")
"""What the plan is made for; `stragglar calibrate --on torch` measures it."""


class Transformer(nn.Module):
    """Two layers that guess the next letter."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        # No buffer: DDP would broadcast it in every step, by collectives that name no rank when they fail.
        self.mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Scores of the next letter, shape (batch, CONTEXT, VOCABULARY)."""
        return self.head(self.layers(self.letters(text) + self.places, mask=self.mask, is_causal=True))


def corpus(seed: int) -> torch.Tensor:
    """Synthetic text: words of a seeded vocabulary, the common ones more often."""
    rng = random.Random(seed)
    words = [[rng.randrange(1, VOCABULARY) for _ in range(rng.randrange(2, 7))] for _ in range(60)]
    chosen = rng.choices(words, [1 / (1 + i) for i in range(len(words))], k=4000)
    return torch.tensor([letter for word in chosen for letter in (*word, 0)])


def late_ranks(ranks: int, steps: int, seed: int) -> list[int]:
    """Who is slowed in each step: mostly the usual rank."""
    rng = random.Random(seed)
    usual, drawn = rng.randrange(ranks), []
    while len(drawn) < steps:
        drawn += [usual if rng.random() < USUAL else rng.randrange(ranks)] * STICKY
    return drawn[:steps]


@dataclass(frozen=True)
class Trained:
    """A training: mean loss of all ranks in every step, a digest of the weights, who was late, seconds."""

    losses: list[float]
    digest: str
    late: dict[int, int]
    seconds: float


def train(
    options: argparse.Namespace, schedule: Schedule | None, mode: str = "eager", record: bool = False
) -> Trained:
    """Trains by plain DDP, or with a schedule."""
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(Transformer(), bucket_cap_mb=BUCKET_BYTES / 2**20)
    state = None
    if schedule is not None:
        # These two lines are all that a training program needs; without a schedule it is planned.
        state = StragglarState(schedule, mode=mode, timeout=options.timeout)
        recorder = ArrivalRecorder(str(options.folder / "arrivals.csv") if record else None)
        model.register_comm_hook(state, recorder.wrap(stragglar_hook))
    began = time.perf_counter()
    losses = steps(options, model, may_die=record)
    seconds = (time.perf_counter() - began) / options.steps
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
    if state is None:
        return Trained(losses, digest, {}, seconds)
    if record:
        recorder.save()
    state.close()
    return Trained(losses, digest, state.late_counts, seconds)


def steps(options: argparse.Namespace, model: nn.Module, may_die: bool) -> list[float]:
    """The training loop."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    text, losses = corpus(options.seed), []
    rng, optimizer = random.Random(options.seed + 1 + rank), torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step, late in enumerate(late_ranks(ranks, options.steps, options.seed)):
        if may_die and step == options.steps // 2 and rank == options.kill:
            os._exit(1)
        if rank == late:
            time.sleep(rng.uniform(0.5, 1.5) * options.delay)
        starts = [rng.randrange(len(text) - CONTEXT - 1) for _ in range(BATCH)]
        batch = torch.stack([text[at : at + CONTEXT + 1] for at in starts])
        scores = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    mean = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(mean)
    return (mean / ranks).tolist()


def plan_of_trace(options: argparse.Namespace) -> Schedule:
    """What `stragglar plan` makes of the recorded arrivals, as all ranks read it."""
    trace, plan = str(options.folder / "arrivals.csv"), str(options.folder / "plan.json")
    if dist.get_rank() == 0:
        link = ["--bytes", str(BUCKET_BYTES), *LINK]
        for command in (["report", "trace", trace], ["plan", "--arrivals", trace, *link, "-o", plan]):
            print(f"\n$ stragglar {' '.join(command)}", flush=True)
            if stragglar(command):
                raise RuntimeError("rank 0: no plan could be made")
        print(flush=True)
    dist.barrier()
    return load_schedule(plan)


def compare(options: argparse.Namespace) -> int:
    """Trains three times and compares, as one rank; returns the exit code."""
    ranks = dist.get_world_size()
    runs = {"plain DDP": train(options, None)}
    runs["eager"] = train(options, synthesize(Request(ranks=ranks, late=(0,), refine=2)), record=True)
    planned = plan_of_trace(options)
    # One late rank: eager mode gives its place to whoever is late. Else as the plan says.
    mode = "eager" if len(planned.late) == 1 else "static"
    named = f"planned: {planned.origin.family}, {mode}"
    runs[named] = train(options, planned, mode)
    rows, good = [], True
    for name, run in runs.items():
        digests = [""] * ranks
        dist.all_gather_object(digests, run.digest)
        pairs = zip(run.losses, runs["plain DDP"].losses, strict=True)
        worst = max(abs(a - b) / abs(b) for a, b in pairs)
        same = len(set(digests)) == 1
        good = good and same and worst < 1e-3
        rows.append((name, run, worst, "bit-identical" if same else "DIFFERENT"))
    if dist.get_rank() == 0:
        print(table(rows, options, ranks), flush=True)
    return 0 if good else 1


def table(rows: list[tuple[str, Trained, float, str]], options: argparse.Namespace, ranks: int) -> str:
    """What has come out, for people."""
    lines = [f"{'training':<28}{'first loss':>11}{'last':>9}{'off by':>10}  {'replicas':<15}{'ms a step':>9}"]
    for name, run, worst, replicas in rows:
        losses = f"{run.losses[0]:>11.4f}{run.losses[-1]:>9.4f}{worst:>10.1e}"
        lines.append(f"{name:<28}{losses}  {replicas:<15}{run.seconds * 1e3:>9.1f}")
    for name, run, *_ in rows[1:]:
        who = ", ".join(f"{'nobody' if r < 0 else f'rank {r}'} {n}" for r, n in sorted(run.late.items()))
        lines.append(f"{name}: taken as late, in buckets: {who}")
    return "\n".join(
        [
            *lines,
            f"off by: largest relative difference of a step's loss to plain DDP's. {ranks} processes on"
            f" {os.cpu_count()} cores, {options.steps} steps, a rank {options.delay * 1e3:g} ms late on"
            " average: times show what the hook costs here, not what it gains on a network.",
        ]
    )


def one_rank(options: argparse.Namespace) -> int:
    """One rank, started by torchrun or by `main`."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        code = compare(options)
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if "rank" in line]
        # One write: the lines of several ranks must not mix.
        os.write(1, f"rank {dist.get_rank()} failed: {(lines or [str(error)])[0]}\n".encode())
        os._exit(1)  # a group that is broken cannot be left in an orderly way
    dist.destroy_process_group()
    return code


def start(options: argparse.Namespace) -> int:
    """Forks the ranks: torch is imported once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fork = multiprocessing.get_context("fork")
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(options.ranks)}
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # as under torchrun: rank 0 does not hold the store
    children = []
    for rank in range(options.ranks):
        os.environ["RANK"] = str(rank)
        child = fork.Process(target=lambda: sys.exit(one_rank(options)))
        child.start()
        children.append(child)
    # After the forks, which threads do not survive; held here, it outlives any rank.
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    for child in children:
        child.join()
    del store
    return max(abs(child.exitcode or 0) for child in children)


def main() -> int:
    """Reads the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--delay", type=float, default=0.04, help="mean delay of the late rank in seconds")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds that one message may take")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--kill", type=int, default=-1, help="rank that dies in the middle of our training")
    parser.add_argument("--folder", type=Path, default=Path("build/ddp_transformer"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    return one_rank(options) if "RANK" in os.environ else start(options)


if __name__ == "__main__":
    sys.exit(main())
