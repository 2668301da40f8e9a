"""A rank that dies: every other rank gets an error that names it, within the timeout."""

import importlib.util
import os
import signal
import time

import pytest

from stragglar.backends.torch import HOW

if importlib.util.find_spec("torch") is None:
    pytest.skip(HOW, allow_module_level=True)

import torch
from torch.nn.parallel import DistributedDataParallel

from stragglar.backends.torch import StragglarState, blame, stragglar_hook
from stragglar.synth import Request, synthesize

from .forked import run

TIMEOUT = 3.0


def until_it_fails(state, rank, dying, when, exits):
    for turn in range(10):
        if rank == dying and turn == when:
            os._exit(3)
        started = time.monotonic()
        try:
            state.reduce(torch.ones(1000), op="SUM").wait()
        except RuntimeError as error:
            told = str(error), time.monotonic() - started
            if not exits:
                time.sleep(TIMEOUT)  # a rank that lives on keeps its connections
            return told
    return "nothing failed", 0.0


def dying_alone(rank, ranks, dying, mode, exits):
    schedule = synthesize(Request(ranks=ranks, late=(1,), refine=2))
    state = StragglarState(schedule, mode=mode, timeout=TIMEOUT)
    return until_it_fails(state, rank, dying, 2, exits)


@pytest.mark.parametrize(
    ("dying", "mode", "exits"),
    [(1, "eager", True), (3, "static", False), (0, "static", True), (2, "off", False)],
)
def test_the_dead_rank_is_named_on_all_others(dying, mode, exits):
    results = run(5, dying_alone, 5, dying, mode, exits)
    for rank, told in enumerate(results):
        if rank == dying:
            assert told is None
            continue
        text, seconds = told
        assert f"rank {dying} " in text and seconds < TIMEOUT + 4, (rank, text, seconds)
        assert text.count("rank") < 6


def hanging(rank, ranks, hung, how, mode):
    blame.ROLL_CALL_SECONDS, blame.LOOKOUT_SECONDS = 1.5, 0.3
    schedule = synthesize(Request(ranks=ranks, late=(1,), refine=2))
    state = StragglarState(schedule, mode=mode, timeout=TIMEOUT / 2)
    for turn in range(3):
        if turn == 2 and rank == hung:
            if how == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(60)
        if turn == 2 and rank == (hung + 2) % ranks:
            time.sleep(TIMEOUT / 4)  # its time is up later: it still waits when the others call the roll
        try:
            state.reduce(torch.ones(1000), op="SUM").wait()
        except RuntimeError as error:
            time.sleep(TIMEOUT / 2)
            return str(error)
    return "nothing failed"


def hung_ranks(ranks, hung, how, mode):
    """What the others are told; the rank that hangs is not waited for."""
    results = run(ranks, hanging, ranks, hung, how, mode, unheard=(hung,))
    assert results.pop(hung) is None
    return results


@pytest.mark.parametrize(
    ("hung", "how", "mode"),
    [(3, "asleep", "static"), (0, "stopped", "static"), (2, "asleep", "eager"), (4, "asleep", "off")],
)
def test_a_rank_that_hangs_is_named_on_all_others(hung, how, mode):
    for text in hung_ranks(5, hung, how, mode):
        assert f"RuntimeError: rank {hung} gave no sign of life" in text, text
        assert text.count("gave no sign") == text.count(f"rank {hung} gave no sign"), text


def in_training(rank, ranks):
    state = StragglarState(synthesize(Request(ranks=ranks, late=(0,))), timeout=TIMEOUT)
    torch.manual_seed(0)
    net = DistributedDataParallel(torch.nn.Linear(50, 50))
    net.register_comm_hook(state, stragglar_hook)
    for step in range(4):
        if rank == 2 and step == 2:
            os._exit(3)
        try:
            net(torch.ones(2, 50)).sum().backward()
        except RuntimeError as error:
            return str(error)
    return "nothing failed"


def test_a_rank_that_dies_in_ddp():
    results = run(4, in_training, 4)
    assert results.pop(2) is None
    assert all("rank 2 " in text for text in results), results
