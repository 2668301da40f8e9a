"""The backend "stragglar": all_reduce by schedules, the rest as in gloo; new_group, DDP and FSDP2 on it."""

import importlib.util

import pytest

from stragglar.backends.torch import HOW

if importlib.util.find_spec("torch") is None:
    pytest.skip(HOW, allow_module_level=True)

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from stragglar.backends.torch import register
from stragglar.synth import Request, synthesize

from .forked import run


def planner(ranks, nbytes):
    return synthesize(Request(ranks=ranks, late=(0,))) if nbytes > 8 else None


register(planner)


def collectives(rank, ranks):
    assert dist.get_backend() == "stragglar" and dist.get_world_size() == ranks and dist.get_rank() == rank
    total = sum(range(ranks))
    mine = torch.full((100,), float(rank), dtype=torch.bfloat16)
    dist.all_reduce(mine)
    assert torch.all(mine == total)
    work = dist.all_reduce(mine, op=dist.ReduceOp.AVG, async_op=True)
    work.wait()
    assert work.is_completed() and torch.all(mine == total)
    assert sum(dist.group.WORLD.late_counts.values()) == 2
    small = torch.ones(1)
    dist.all_reduce(small)  # the planner wants the ordinary one
    assert small.item() == ranks
    others(rank, ranks)


def others(rank, ranks):
    got = [torch.zeros(2) for _ in range(ranks)]
    dist.all_gather(got, torch.full((2,), float(rank)))
    assert [t[0].item() for t in got] == list(range(ranks))
    into = torch.zeros(ranks)
    dist.all_gather_into_tensor(into, torch.full((1,), float(rank)))
    assert into.tolist() == list(range(ranks))
    sent = torch.full((3,), float(rank))
    dist.broadcast(sent, src=1)
    assert torch.all(sent == 1)
    part = torch.zeros(1)
    dist.reduce_scatter_tensor(part, torch.arange(float(ranks)))
    assert part.item() == rank * ranks
    swap = torch.zeros(ranks)
    dist.all_to_all_single(swap, torch.arange(float(ranks)) + 10 * rank)
    assert swap.tolist() == [10.0 * r + rank for r in range(ranks)]
    if rank == 0:
        dist.send(torch.ones(2), 1)
    elif rank == 1:
        dist.recv(mine := torch.zeros(2), 0)
        assert torch.all(mine == 1)
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(ranks)]
    dist.barrier()


def test_collectives():
    run(3, collectives, 3, backend="stragglar")


def groups(rank, ranks):
    three, pair = dist.new_group([0, 2, 3]), dist.new_group([1, 0])
    alone = [dist.new_group([r]) for r in range(ranks)][rank]
    for group, members in ((three, [0, 2, 3]), (pair, [0, 1]), (alone, [rank])):
        if rank in members:
            mine = torch.full((64,), float(rank))
            dist.all_reduce(mine, group=group)
            assert torch.all(mine == sum(members)), mine
            assert dist.get_backend(group) == "stragglar"


def test_new_group():
    run(4, groups, 4, backend="stragglar")


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))


def trained(net, rank, parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(16, 8, generator=generator)).square().mean().backward()
        optimizer.step()


def ddp(rank, ranks):
    net = DistributedDataParallel(model(), bucket_cap_mb=0.001)
    trained(net, rank, net.parameters())
    assert sum(dist.group.WORLD.late_counts.values()) >= 3
    return [p.detach().numpy() for p in net.parameters()]


def fsdp(rank, ranks):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (ranks,))
    net = model()
    for layer in (net[0], net[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    trained(net, rank, net.parameters())
    return [p.full_tensor().detach().numpy() for p in net.parameters()]


def hybrid(rank, ranks):
    """FSDP2 with replicas: its all_reduce across them is ours."""
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicas", "shards"))
    net = model()
    for layer in (net[0], net[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    trained(net, rank, net.parameters())
    assert sum(mesh.get_group("replicas").late_counts.values()) >= 6
    assert not mesh.get_group("shards").late_counts
    for _ in range(20):  # gathers in quick succession, which torch's own trampoline deadlocks at
        assert all(torch.isfinite(p.full_tensor()).all() for p in net.parameters())
    return [p.full_tensor().detach().numpy() for p in net.parameters()]


def plain(rank, ranks):
    net = DistributedDataParallel(model())
    trained(net, rank, net.parameters())
    return [p.detach().numpy() for p in net.parameters()]


@pytest.mark.parametrize("function", [ddp, fsdp, hybrid])
def test_training_on_it_equals_plain_ddp(function):
    ours, theirs = run(4, function, 4, backend="stragglar"), run(4, plain, 4)
    for rank in range(4):
        for mine, first, other in zip(ours[rank], ours[0], theirs[rank], strict=True):
            assert mine.tobytes() == first.tobytes()
            assert torch.allclose(torch.from_numpy(mine), torch.from_numpy(other), rtol=1e-5, atol=1e-7)
