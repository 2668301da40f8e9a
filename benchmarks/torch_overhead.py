"""What the PyTorch backend costs where it cannot gain: decisions, and calls with small tensors.

    OMP_NUM_THREADS=1 python benchmarks/torch_overhead.py -o benchmarks/results/torch_overhead.json

All ranks are processes of this machine, over gloo; nobody is late on purpose. A decision (who is late) is
timed in shared memory and in a TCPStore; an all_reduce by torch itself, through the hook's thread with
nothing else changed (`off`), by a schedule (`static`) and by a schedule after a decision (`eager`). All are
taken in turn in one run, so that ratios compare like with like. Needs torch.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from stragglar.backends.conditions import conditions
from stragglar.backends.torch import StragglarState
from stragglar.backends.torch.shared_board import make_board
from stragglar.schedules.files import write_atomic
from stragglar.schedules.units import format_bytes
from stragglar.synth import Request, synthesize

HERE = Path(__file__).parent
SIZES = (4, 4 << 10, 64 << 10, 1 << 20)
WAYS = ("plain", "off", "static", "eager")
BURST = 20
"""Calls of one way before the next way has its turn."""


def timed(call: Callable[[], object], times: int) -> list[float]:
    """Seconds of each of so many calls; all ranks begin each together, as far as a barrier can do that."""
    taken = []
    for _ in range(times):
        dist.barrier()
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return taken


def in_turn(ways: dict[str, Callable[[], object]], repeat: int) -> dict[str, list[float]]:
    """Seconds of each call of each way, the mean of all ranks, in ascending order."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        timed(call, 3)
    for _ in range(-(-repeat // BURST)):
        for name, call in ways.items():
            found[name] += timed(call, BURST)
    for name, taken in found.items():
        mean = torch.tensor(taken, dtype=torch.float64)
        dist.all_reduce(mean)
        found[name] = sorted((mean / dist.get_world_size()).tolist())
    return found


def decisions(rank: int, ranks: int, repeat: int) -> dict[str, list[float]]:
    """Seconds of a decision, in shared memory and in the store."""
    store = dist.distributed_c10d._get_default_store()
    ways: dict[str, Callable[[], object]] = {}
    for name, shared in (("shared memory", True), ("TCPStore", False)):
        board = make_board(dist.PrefixStore(name, store.clone()), rank, ranks, 1, 60.0, shared=shared)
        ways[name] = lambda board=board: board.arrive(0.0)  # type: ignore[misc]
    return in_turn(ways, repeat)


def calls(ranks: int, size: int, repeat: int) -> dict[str, list[float]]:
    """Seconds of an all_reduce of `size` bytes, each way."""
    tensor = torch.zeros(size // 4)
    schedule = synthesize(Request(ranks, (0,)))
    ways: dict[str, Callable[[], object]] = {"plain": lambda: dist.all_reduce(tensor)}
    states = [StragglarState(schedule, mode=mode) for mode in ("off", "static", "eager")]
    for name, state in zip(WAYS[1:], states, strict=True):
        ways[name] = lambda state=state: state.reduce(tensor, op="SUM").wait()  # type: ignore[misc]
    found = in_turn(ways, repeat)
    for state in states:
        state.close()
    return found


def measure_rank(
    rank: int, ranks: int, port: int, sizes: tuple[int, ...], repeat: int, out: Connection
) -> None:
    """All measurements, as one rank."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    rows: list[dict[str, Any]] = []
    decided = decisions(rank, ranks, repeat)
    for name, seconds in decided.items():
        rows.append(_row(ranks, "decision", None, name, seconds, decided["TCPStore"]))
    for size in sizes:
        found = calls(ranks, size, repeat)
        rows += [_row(ranks, "all_reduce", size, name, found[name], found["plain"]) for name in WAYS]
    if rank == 0:
        out.send(rows)
    time.sleep(60)  # until the parent, which has the rows, ends all ranks: a broken connection is no result
    os._exit(1)


def _row(
    ranks: int, what: str, size: int | None, how: str, seconds: list[float], base: list[float]
) -> dict[str, Any]:
    return {
        "ranks": ranks,
        "what": what,
        "bytes": size,
        "how": how,
        "seconds": statistics.median(seconds),
        "quick": _quick(seconds),
        "ratio": statistics.median(seconds) / statistics.median(base),
        "quick_ratio": _quick(seconds) / _quick(base),
    }


def _quick(seconds: list[float]) -> float:
    """The first decile: what the others of a busy machine have disturbed least."""
    return seconds[len(seconds) // 10]


def keep_store(out: Connection) -> None:
    """Holds the store. Not in the parent: its threads do not survive a fork."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    out.send(store.port)
    time.sleep(86400)


def measure(ranks: int, sizes: tuple[int, ...], repeat: int) -> list[dict[str, Any]]:
    """Forks the ranks, so that torch is imported once, and returns the rows of rank 0."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    keeper = fork.Process(target=keep_store, args=(theirs,), daemon=True)
    keeper.start()
    port = ours.recv()
    arguments = (ranks, port, sizes, repeat, theirs)
    children = [
        fork.Process(target=measure_rank, args=(rank, *arguments), daemon=True) for rank in range(ranks)
    ]
    for child in children:
        child.start()
    try:
        while not ours.poll(0.1):
            if any(child.exitcode for child in children):
                raise click.ClickException("a rank failed")
        found: list[dict[str, Any]] = ours.recv()
        return found
    finally:
        for child in (*children, keeper):
            child.kill()
            child.join()


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    view = Table(title="torch over gloo; ratios to the store and to plain all_reduce")
    for column in ("ranks", "what", "size", "how", "median ms", "ratio", "quick ms", "ratio"):
        view.add_column(column, justify="right")
    for r in rows:
        size = "" if r["bytes"] is None else format_bytes(r["bytes"])
        median, quick = (f"{r[name] * 1e3:.3f}" for name in ("seconds", "quick"))
        ratios = (f"{r[name]:.2f}" for name in ("ratio", "quick_ratio"))
        view.add_row(str(r["ranks"]), r["what"], size, r["how"], median, next(ratios), quick, next(ratios))
    return view


@click.command()
@click.option(
    "-n", "--ranks", type=click.IntRange(2, 64), multiple=True, default=(2, 4, 8), show_default=True
)
@click.option("--bytes", "sizes", type=click.IntRange(4), multiple=True, default=SIZES, show_default=True)
@click.option("--repeat", type=click.IntRange(1), default=200, show_default=True, help="Calls of each.")
@click.option("-o", "--output", help="JSON file for the figures and their conditions.")
def main(ranks: tuple[int, ...], sizes: tuple[int, ...], repeat: int, output: str | None) -> None:
    """Time decisions and small all_reduces under torch."""
    rows = []
    for n in ranks:
        click.echo(f"{n} ranks ...", err=True)
        rows += measure(n, sizes, repeat)
    Console().print(table(rows))
    if output:
        where = conditions(HERE, repeat=repeat, torch=torch.__version__)
        write_atomic(output, json.dumps({"conditions": where, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
