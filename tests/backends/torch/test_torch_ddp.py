"""The DDP hook: replicas bit-identical, equal to plain DDP within rounding, changing buckets, bf16."""

import importlib.util
import random
import time

import pytest

from stragglar.backends.torch import HOW

if importlib.util.find_spec("torch") is None:
    pytest.skip(HOW, allow_module_level=True)

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_wrapper
from torch.nn.parallel import DistributedDataParallel

from stragglar.backends.torch import StragglarState, stragglar_hook
from stragglar.schedules import UsageError
from stragglar.synth import Request, synthesize

from .forked import run

STEPS = 6


def network():
    torch.manual_seed(1)
    layers = [layer for _ in range(3) for layer in (torch.nn.Linear(40, 40), torch.nn.Tanh())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(40, 3))


def compressed(hook):
    """torch's wrapper under another name: DDP refuses its own on gloo, where it works all the same."""
    wrapped = bf16_compress_wrapper(hook)
    return lambda state, bucket: wrapped(state, bucket)


def trained(rank, ranks, how, decide, mode):
    state = None
    net = DistributedDataParallel(network(), bucket_cap_mb=0.005)
    sizes = set()
    if how != "plain":
        schedule = synthesize(Request(ranks=ranks, late=(0,), refine=2))
        state = StragglarState(schedule, mode=mode, decide=decide)

        def noting(state, bucket):
            sizes.add(bucket.buffer().numel())
            return stragglar_hook(state, bucket)

        net.register_comm_hook(state, noting if how == "ours" else compressed(stragglar_hook))
    elif decide == "bf16":
        net.register_comm_hook(None, compressed(allreduce_hook))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    generator, delays, losses = torch.Generator().manual_seed(rank), random.Random(3), []
    for _ in range(STEPS):
        if delays.randrange(ranks) == rank:
            time.sleep(0.02)
        optimizer.zero_grad()
        loss = net(torch.randn(8, 40, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    counts = state.late_counts if state else {}
    if state:
        state.close()
    weights = torch.cat([p.detach().flatten() for p in net.parameters()])
    return weights.numpy(), losses, counts, sizes


@pytest.mark.parametrize(
    ("ranks", "decide", "mode"), [(4, "iteration", "eager"), (3, "call", "eager"), (4, "call", "static")]
)
def test_the_same_training_as_plain_ddp(ranks, decide, mode):
    ours = run(ranks, trained, ranks, "ours", decide, mode)
    theirs = run(ranks, trained, ranks, "plain", "call", "off")
    assert len(ours[0][3]) > 2, "buckets of several sizes, other ones after the first iteration"
    for (weights, losses, counts, _), (plain, plain_losses, *_) in zip(ours, theirs, strict=True):
        assert weights.tobytes() == ours[0][0].tobytes(), "replicas must be bit-identical"
        assert torch.allclose(torch.from_numpy(weights), torch.from_numpy(plain), rtol=1e-3, atol=1e-5)
        assert losses == pytest.approx(plain_losses, rel=1e-4)
        assert counts == ours[0][2] and sum(counts.values()) > STEPS
    if mode == "eager":
        assert len(ours[0][2]) > 1, "the late rank changed"


def test_it_composes_with_bf16_compression():
    ours, theirs = (
        run(4, trained, 4, "bf16", "iteration", "eager"),
        run(4, trained, 4, "plain", "bf16", "off"),
    )
    for (weights, losses, *_), (_, plain_losses, *_) in zip(ours, theirs, strict=True):
        assert weights.tobytes() == ours[0][0].tobytes()
        assert losses == pytest.approx(plain_losses, rel=0.05)


def compiled(rank, ranks, backend, ours):
    net = DistributedDataParallel(network())
    state = StragglarState(synthesize(Request(ranks=ranks, late=(0,))))
    if ours:
        net.register_comm_hook(state, stragglar_hook)
    fast, generator = torch.compile(net, backend=backend), torch.Generator().manual_seed(rank)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        fast(torch.randn(8, 40, generator=generator)).square().mean().backward()
        optimizer.step()
    counts = state.late_counts
    state.close()
    return torch.cat([p.detach().flatten() for p in net.parameters()]).numpy(), sum(counts.values())


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_model_trains_the_same(backend):
    ours, theirs = (run(2, compiled, 2, backend, which, seconds=150) for which in (True, False))
    assert ours[0][0].tobytes() == ours[1][0].tobytes() and ours[0][1] >= 3 and theirs[0][1] == 0
    assert torch.allclose(torch.from_numpy(ours[0][0]), torch.from_numpy(theirs[0][0]), atol=1e-6)


def refusals(rank, ranks):
    with pytest.raises(UsageError, match="for 4 ranks and the process group has 3"):
        StragglarState(synthesize(Request(ranks=4, late=(0,))))
    with pytest.raises(UsageError, match="mode 'lazy'"):
        StragglarState(synthesize(Request(ranks=3, late=(0,))), mode="lazy")
    with pytest.raises(UsageError, match="decide 'never'"):
        StragglarState(synthesize(Request(ranks=3, late=(0,))), decide="never")
    with pytest.raises(UsageError, match="threshold"):
        StragglarState(synthesize(Request(ranks=3, late=(0,))), threshold=-1)


def test_what_is_refused():
    run(3, refusals, 3)


def differing(rank, ranks):
    state = StragglarState(synthesize(Request(ranks=3, late=(0,))), mode="static", timeout=5)
    with pytest.raises(RuntimeError, match=r"all must do the same|closed") as caught:
        state.reduce(torch.ones(100 + (rank == 1))).wait()
    return str(caught.value)


def test_ranks_that_do_not_do_the_same_are_told():
    assert any("101 elements" in text for text in run(3, differing, 3))
    assert dist.is_available()
