"""Ranks forked from this process, which has imported torch once; their results come back through pipes."""

import faulthandler
import gc
import multiprocessing
import os
import time
import traceback

import torch
import torch._dynamo
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

assert torch._dynamo and DistributedDataParallel  # imported here, once: in each rank it would take seconds

torch.set_num_threads(1)


def run(ranks, function, *arguments, seconds=60, backend="gloo", unheard=()):
    """Runs `function(rank, *arguments)` on so many ranks with a process group; returns their results.

    A rank that raises fails the test; one that ends without a word, or is in `unheard`, has the result None.
    """
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    keeper = fork.Process(target=_keep_store, args=(theirs,))
    keeper.start()
    port = ours.recv()
    pipes = [fork.Pipe(duplex=False) for _ in range(ranks)]
    gc.collect()
    children = [
        fork.Process(target=_rank, args=(r, ranks, port, backend, pipe, seconds - 5, function, arguments))
        for r, (_, pipe) in enumerate(pipes)
    ]
    for child in children:
        child.start()
    until = time.monotonic() + seconds
    try:
        results = [
            ("unheard", None) if r in unheard else _result(ours, child, until)
            for r, ((ours, _), child) in enumerate(zip(pipes, children, strict=True))
        ]
    finally:
        for child in (*children, keeper):
            child.kill()
            child.join()
    bad = [f"rank {r}: {text}" for r, (kind, text) in enumerate(results) if kind == "error"]
    assert not bad, "\n".join(bad)
    return [value for _, value in results]


def _keep_store(pipe):
    """Holds the store, which so outlives any rank. Not in the parent: its threads do not survive a fork."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipe.send(store.port)
    time.sleep(600)


def _result(pipe, child, until):
    while time.monotonic() < until:
        if pipe.poll(0.02):
            return pipe.recv()
        if child.exitcode is not None and not pipe.poll(0):
            return "died", None
    return "error", "it did not end in time"


def _rank(rank, ranks, port, backend, pipe, seconds, function, arguments):
    faulthandler.dump_traceback_later(seconds)
    try:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
        value = ("ok", function(rank, *arguments))
    except BaseException:
        value = ("error", traceback.format_exc())
    pipe.send(value)
    time.sleep(0.2 if value[0] == "ok" else 0)
    os._exit(0)  # the parent's buffers and exit handlers are not this process's
