"""Trains a small transformer with DDP on gloo, a rank slowed in every step, plain and with StragglAR's hook.

    python examples/ddp_transformer.py --ranks 4 --folder /tmp/run    # starts the ranks itself
    torchrun --nproc-per-node 4 examples/ddp_transformer.py           # or takes those of torchrun
    python examples/ddp_transformer.py --ranks 4 --kill 2             # rank 2 dies: all others name it

The text is made here from a seed. Compared are the losses of every step (equal within rounding) and the
replicas (equal bit for bit); the arrivals are recorded, and a plan is made from them.
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
from pathlib import Path

import torch
import torch._dynamo  # DDP imports it: once here, not in every forked rank
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stragglar.backends.torch import ArrivalRecorder, StragglarState, stragglar_hook
from stragglar.cli.main import run as stragglar
from stragglar.synth import Request, synthesize

VOCABULARY, CONTEXT, WIDTH, BATCH = 32, 24, 48, 4
STICKY = 2
"""For so many steps the same rank is late; then another one is drawn."""


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
    """Who is slowed in each step."""
    rng = random.Random(seed)
    return [rank for _ in range(0, steps, STICKY) for rank in [rng.randrange(ranks)] * STICKY][:steps]


def train(options: argparse.Namespace, ours: bool) -> tuple[list[float], str, dict[int, int]]:
    """Trains; returns the mean loss of all ranks in every step, a digest of the weights, and who was late."""
    rank, ranks, state = dist.get_rank(), dist.get_world_size(), None
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(Transformer(), bucket_cap_mb=0.1)
    if ours:
        schedule = synthesize(Request(ranks=ranks, late=(0,), refine=2))
        # These two lines are all that a training program needs.
        state = StragglarState(schedule, timeout=options.timeout)
        recorder = ArrivalRecorder(str(options.folder / "arrivals.csv"))
        model.register_comm_hook(state, recorder.wrap(stragglar_hook))
    losses = steps(options, model, rank, ranks, ours)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
    if state is None:
        return losses, digest, {}
    recorder.save()
    state.close()
    return losses, digest, state.late_counts


def steps(options: argparse.Namespace, model: nn.Module, rank: int, ranks: int, may_die: bool) -> list[float]:
    """The training loop."""
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


def compare(options: argparse.Namespace) -> int:
    """Trains twice and compares, as one rank; returns the exit code."""
    plain, _, _ = train(options, ours=False)
    losses, digest, late = train(options, ours=True)
    digests = [""] * dist.get_world_size()
    dist.all_gather_object(digests, digest)
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses, plain, strict=True))
    good = worst < 1e-3 and len(set(digests)) == 1
    if dist.get_rank() == 0:
        print(
            f"losses: plain DDP {plain[0]:.4f} .. {plain[-1]:.4f}, ours {losses[0]:.4f} .. {losses[-1]:.4f}"
        )
        print(f"largest relative difference of a step's loss: {worst:.2e}")
        print(f"replicas: {'bit-identical' if len(set(digests)) == 1 else 'DIFFERENT'}")
        print(f"buckets reduced with each rank late (-1: nobody): {dict(sorted(late.items()))}", flush=True)
        trace, size = (
            str(options.folder / "arrivals.csv"),
            sum(p.numel() * 4 for p in Transformer().parameters()),
        )
        plan = ["plan", "--arrivals", trace, "--bytes", str(size), "--alpha", "50us", "--bandwidth", "1GiB/s"]
        good = stragglar(["trace", "report", trace]) == 0 and stragglar(plan) == 0 and good
    return 0 if good else 1


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
    parser.add_argument("--delay", type=float, default=0.02, help="mean delay of the late rank in seconds")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds that one message may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kill", type=int, default=-1, help="rank that dies in the middle of our training")
    parser.add_argument("--folder", type=Path, default=Path("build/ddp_transformer"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    return one_rank(options) if "RANK" in os.environ else start(options)


if __name__ == "__main__":
    sys.exit(main())
