"""The executor over gloo: every type, operation, size and layout; whoever is late; identical replicas."""

import importlib.util
import time

import numpy as np
import pytest

from stragglar.backends.torch import HOW

if importlib.util.find_spec("torch") is None:
    pytest.skip(HOW, allow_module_level=True)

import torch
import torch.distributed as dist

from stragglar.backends.torch import StragglarState, renamed
from stragglar.schedules import UsageError, validate
from stragglar.synth import Request, synthesize

from .forked import run

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")


def schedule_for(ranks, late=0, **more):
    return synthesize(Request(ranks=ranks, late=(late,), **{"refine": 2} | more))


def inputs(ranks, numel, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 3, (numel,), generator=generator).to(dtype) for _ in range(ranks)]


def expected(data, op, dtype):
    stack = torch.stack([d.to(torch.int64 if dtype != torch.bool else dtype) for d in data])
    if op == "AVG":
        total = stack.sum(0)
        return total.double() / len(data) if dtype.is_floating_point else total // len(data)
    if dtype == torch.bool:
        return stack.any(0) if op in ("SUM", "MAX", "BOR") else stack.all(0)
    if op in ("BAND", "BOR", "BXOR"):
        kind = {"BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}[op]
        return torch.from_numpy(kind.reduce(stack.numpy(), axis=0))
    found = {"SUM": stack.sum, "PRODUCT": stack.prod, "MIN": stack.amin, "MAX": stack.amax}[op]
    return found(0)


def check(state, rank, ranks, dtype, op, numel):
    data = inputs(ranks, numel, dtype, numel)
    mine = data[rank].clone()
    out = state.reduce(mine, op=op).wait()
    assert out.data_ptr() == mine.data_ptr()
    want = expected(data, op, dtype)
    if dtype.is_floating_point:
        tolerance = 4 * torch.finfo(dtype).eps * ranks if op == "AVG" else 0
        assert torch.allclose(mine.double(), want.double(), rtol=tolerance, atol=0), (dtype, op, numel)
    else:
        assert torch.equal(mine, want.to(dtype)), (dtype, op, numel, mine, want)


def all_types(rank, ranks):
    state = StragglarState(schedule_for(ranks))
    for numel in (0, 3, 1003):
        for dtype in (*FLOATS, *WHOLE):
            for op in OPS:
                check(state, rank, ranks, dtype, op, numel)
        for op in ("BAND", "BOR", "BXOR"):
            check(state, rank, ranks, torch.int32, op, numel)
        for op in ("SUM", "BAND", "MAX"):
            check(state, rank, ranks, torch.bool, op, numel)
    state.close()
    return state.late_counts


@pytest.mark.parametrize("ranks", [2, 5])
def test_every_type_operation_and_size(ranks):
    counts = run(ranks, all_types, ranks)
    assert all(c == counts[0] for c in counts), "all ranks must have taken the same schedules"


def identical(rank, ranks, mode, names):
    """Random floats, everyone late in turn: the bytes on all ranks are the same."""
    state = StragglarState(schedule_for(ranks, **names), mode=mode)
    generator = torch.Generator().manual_seed(rank)
    digests = []
    for turn in range(ranks):
        data = torch.randn(2049, generator=generator)
        if turn == rank:
            time.sleep(0.05)
        digests.append(state.reduce(data, op="SUM").wait().numpy().tobytes())
    state.close()
    return digests, state.late_counts


@pytest.mark.parametrize("ranks", [4, 7])
def test_the_late_rank_is_found_and_replicas_are_identical(ranks):
    results = run(ranks, identical, ranks, "eager", {})
    assert all(digests == results[0][0] for digests, _ in results)
    found = results[0][1]
    assert sum(found.values()) == ranks and len([r for r in found if r >= 0]) >= ranks - 1, found


@pytest.mark.parametrize(
    "names",
    [
        {"algorithm": "ring", "refine": None, "late": ()},
        {"algorithm": "rhd", "refine": None, "late": ()},
        {"algorithm": "merge-allreduce", "refine": None, "chunks": 3},
        {"algorithm": "tree", "late": (1, 3)},
    ],
)
def test_any_schedule_runs(names):
    names = {"late": (0,)} | names
    run(4, any_schedule, 4, Request(ranks=4, **names))


def any_schedule(rank, ranks, request):
    state = StragglarState(synthesize(request), mode="static")
    for numel in (1, 1003):
        check(state, rank, ranks, torch.float32, "SUM", numel)
    assert set(state.late_counts) == {-1}
    state.close()


def layouts(rank, ranks):
    state = StragglarState(schedule_for(ranks))
    base = torch.arange(60.0).reshape(6, 10) + rank
    total = sum(torch.arange(60.0).reshape(6, 10) + r for r in range(ranks))
    for view in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:3, 4], lambda t: t[2, 3]):
        mine = base.clone()
        state.reduce(view(mine), op="SUM").wait()
        want = base.clone()
        view(want).copy_(view(total))
        assert torch.equal(mine, want)
    both = torch.complex(base, -base)
    state.reduce(both, op="AVG").wait()
    assert torch.allclose(both, torch.complex(total, -total) / ranks)
    with pytest.raises(UsageError, match="only dense tensors"):
        state.reduce(torch.eye(2).to_sparse())
    with pytest.raises(UsageError, match="PRODUCT of complex"):
        state.reduce(both, op="PRODUCT")
    with pytest.raises(UsageError, match=r"AVG of torch\.bool"):
        state.reduce(torch.ones(2, dtype=torch.bool), op="AVG")
    with pytest.raises(UsageError, match="is not known"):
        state.reduce(base, op="MEDIAN")
    with pytest.raises(UsageError, match="float8"):
        state.reduce(torch.zeros(2, dtype=torch.float8_e4m3fn), op="SUM")
    several = [torch.full((n,), float(rank)) for n in (10, 1, 500)]
    for future in [state.reduce(t, op="SUM") for t in several]:
        future.wait()  # all under way at the same time
    assert all(torch.all(t == sum(range(ranks))) for t in several)
    state.close()
    with pytest.raises(UsageError, match="closed"):
        state.reduce(base)


def test_layouts_and_refusals():
    run(3, layouts, 3)


def thresholds(rank, ranks):
    state = StragglarState(schedule_for(ranks), threshold=0.5)
    for _ in range(3):
        check(state, rank, ranks, torch.float32, "SUM", 100)
    dist.barrier()
    if rank == 2:
        time.sleep(1.5)
    check(state, rank, ranks, torch.float32, "SUM", 100)
    state.close()
    return state.late_counts


def test_nobody_late_enough_is_the_ordinary_all_reduce():
    assert run(3, thresholds, 3) == [{-1: 3, 2: 1}] * 3


def subgroup(rank, ranks):
    members = [0, 2, 3] if rank != 1 else [1, 4]
    groups = [dist.new_group([0, 2, 3]), dist.new_group([1, 4])]
    group = groups[0] if rank != 1 and rank != 4 else groups[1]
    members = dist.get_process_group_ranks(group)
    state = StragglarState(schedule_for(len(members)), group=group)
    mine = torch.tensor([float(rank)])
    assert state.reduce(mine, op="SUM").wait().item() == sum(members)
    state.close()


def test_groups_of_some_ranks():
    run(5, subgroup, 5)


def test_renaming_is_what_the_synthesizer_makes():
    for late in range(7):
        schedule = renamed(schedule_for(7, 3), late)
        assert schedule.phases == schedule_for(7, late).phases and validate(schedule).valid
    with pytest.raises(UsageError, match="with 1 late rank is needed"):
        renamed(synthesize(Request(ranks=4, algorithm="ring")), 1)
    with pytest.raises(UsageError, match="does not exist"):
        renamed(schedule_for(4), 4)
