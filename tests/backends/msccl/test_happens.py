"""Order, races and rounds of programs; the fast race search against one that tries every pair."""

import itertools
import random

import networkx as nx
import numpy as np
import pytest

from stragglar.backends.msccl.happens import order_of, races
from stragglar.backends.msccl.happens_paths import Rounds, critical_path, early_events, rounds
from stragglar.backends.msccl.model import run
from stragglar.backends.msccl.model_code import StepRef, load
from stragglar.backends.msccl.program import Buffer, OpCode, Program, RankProgram, Step, ThreadBlock

INPUT, SCRATCH = Buffer.INPUT, Buffer.SCRATCH


def step(op, src=0, dst=None, dep=(-1, -1), *, buffers=(INPUT, INPUT), count=1, publish=True):
    dst = src if dst is None else dst
    return (OpCode(op), buffers[0], src, buffers[1], dst, count, *dep, publish)


def program(chunks, ranks, *, protocol="Simple", scratch=0):
    """`ranks` are lists of (send peer, recv peer, channel, steps)."""
    gpus = []
    for rank, blocks in enumerate(ranks):
        made = (
            ThreadBlock(i, send, recv, channel, tuple(Step(j, *parts) for j, parts in enumerate(steps)))
            for i, (send, recv, channel, steps) in enumerate(blocks)
        )
        gpus.append(RankProgram(rank, chunks, chunks, scratch, tuple(made)))
    n = len(ranks)
    return Program("test", protocol, 9, chunks, n, "allreduce", True, False, 0, 1 << 20, tuple(gpus))


def found(made):
    return [str(race) for race in races(order_of(load(made, True)))]


def test_messages_order_steps_of_the_sender():
    # Rank 0 sends i[0] in one block; the answer overwrites it in another.
    made = program(
        1,
        [
            [(1, -1, 0, [step("s")]), (-1, 1, 0, [step("r")])],
            [(-1, 0, 0, [step("r")]), (0, -1, 0, [step("s", dep=(0, 0))])],
        ],
    )
    assert found(made) == []


def test_a_full_connection_orders_nothing():
    # The third send can only follow the first receive, but that is a matter of sizes: no order between the
    # first receive and what rank 1 learns from the message on channel 1.
    zero = [(1, -1, 0, [step("s", 0)] * 3), (1, -1, 1, [step("s", 0, dep=(0, 2))])]
    one = [(-1, 0, 0, [step("r", 0), step("r", 1), step("r", 1)]), (-1, 0, 1, [step("r", 0)])]
    text = "rank 1: tb 0 step 0 writes i[0] while tb 1 step 0 writes it; add a dependency"
    assert found(program(2, [zero, one])) == [text]


def test_input_and_output_are_one_buffer_in_place_only():
    copies = [
        (-1, -1, 0, [step("cpy", 0, 1)]),
        (-1, -1, 0, [step("cpy", 0, 1, buffers=(INPUT, Buffer.OUTPUT))]),
    ]
    made = program(2, [copies, []])
    assert len(races(order_of(load(made, True)))) == 1
    assert races(order_of(load(made, False))) == ()


def test_reading_what_it_writes_counts_for_reductions_only():
    blocks = [(-1, -1, 0, [step("re", 0, 1)]), (-1, -1, 0, [step("cpy", 1, 0, buffers=(INPUT, SCRATCH))])]
    text = "rank 0: tb 0 step 0 writes i[1] while tb 1 step 0 reads it; add a dependency"
    assert found(program(2, [blocks, []], scratch=1)) == [text]


@pytest.mark.parametrize(("protocol", "count"), [("Simple", 0), ("LL", 1), ("LL128", 1)])
def test_low_latency_protocols_send_before_they_write(protocol, count):
    # Rank 1 forwards to rank 2 what it stores; the answer says that the message left, not that it is stored.
    middle = [(2, 0, 0, [step("rcs", 0)]), (-1, 2, 0, [step("r", 1), step("cpy", 0, 1)])]
    ranks = [[(1, -1, 0, [step("s")])], middle, [(1, 1, 0, [step("r"), step("s")])]]
    assert len(found(program(2, ranks, protocol=protocol))) == count


def test_circular_waits():
    blocks = [(-1, -1, 0, [step("cpy", 0, 1, (1, 0))]), (-1, -1, 0, [step("cpy", 0, 1, (0, 0)), step("cpy")])]
    order = order_of(load(program(2, [blocks, []]), True))
    assert order.circular
    assert order.sequence == ()
    assert races(order) == ()


def ring(n):
    def steps(r):
        turn = [step("rrs", (r - j) % n) for j in range(1, n - 1)] + [step("rrcs", (r + 1) % n)]
        return [
            step("s", r),
            *turn,
            *(step("rcs", (r - j) % n) for j in range(n - 2)),
            step("r", (r + 2) % n),
        ]

    return program(n, [[((r + 1) % n, (r - 1) % n, 0, steps(r))] for r in range(n)])


@pytest.mark.parametrize("n", [3, 4, 8, 13])
def test_ring_takes_two_turns(n):
    chain = critical_path(ring(n))
    assert len(chain) == 2 * (n - 1)
    assert all(a < b or a.rank != b.rank for a, b in itertools.pairwise(chain))
    assert rounds(ring(n)) == Rounds(0, 2 * (n - 1), 0, 2 * (n - 1))


def test_messages_of_one_block_follow_each_other():
    made = program(
        3, [[(1, -1, 0, [step("s", i) for i in range(3)])], [(-1, 0, 0, [step("r", i) for i in range(3)])]]
    )
    assert critical_path(made) == (StepRef(0, 0, 0), StepRef(0, 0, 1), StepRef(0, 0, 2))


def test_rounds_are_split_where_the_late_rank_comes_in():
    # 0 and 1 exchange twice; 2 sends to 0, which forwards to 1; 0 also sends to 2, and what follows that is
    # not early.
    zero = [
        (1, 1, 0, [step("s", 0), step("r", 1), step("s", 0), step("r", 1)]),
        (2, 2, 0, [step("s", 0, dep=(0, 3)), step("r", 2), step("r", 2)]),
        (1, -1, 1, [step("s", 2, dep=(1, 0)), step("s", 2, dep=(1, 2))]),
    ]
    one = [
        (0, 0, 0, [step("s", 1), step("r", 0), step("s", 1), step("r", 0)]),
        (-1, 0, 1, [step("r", 2), step("r", 2)]),
    ]
    two = [(0, 0, 0, [step("r", 0), step("s", 1), step("s", 1)])]
    made = program(3, [zero, one, two])
    both = rounds(made, {2})
    assert (both.pre, both.post) == (2, 4)
    order = order_of(load(made, True))
    early = {order.events[index].ref for index in early_events(order, {2})}
    assert early == {StepRef(r, 0, s) for r in (0, 1) for s in range(4)}
    assert rounds(made).pre == 0


def _random_program(seed):
    """Blocks of one to five steps on few chunks, with dependencies on lower blocks only."""
    chance = random.Random(seed)
    n, chunks = 3, 8
    ranks = [[] for _ in range(n)]
    for _ in range(3):
        a, b = chance.sample(range(n), 2)
        channel, length = len(ranks[a]) + 8 * len(ranks[b]), chance.randint(1, 2)
        for rank, peers, op in ((a, (b, -1), "s"), (b, (-1, a), "r")):
            ranks[rank].append((*peers, channel, _steps(chance, ranks[rank], chunks, [op] * length)))
        rank = chance.randrange(n)
        ranks[rank].append(
            (-1, -1, 0, _steps(chance, ranks[rank], chunks, chance.choices(["cpy", "re"], k=2)))
        )
    return program(chunks, ranks)


def _steps(chance, blocks, chunks, ops):
    made = []
    for op in ops:
        dep = (-1, -1)
        if blocks and chance.random() < 0.9:
            block = chance.randrange(len(blocks))
            dep = (block, chance.randrange(len(blocks[block][3])))
        made.append(
            step(op, chance.randrange(chunks), chance.randrange(chunks), dep, publish=chance.random() < 0.8)
        )
    return made


def _every_pair(order):
    """(first, second) steps that conflict without a path, found the slow way."""
    graph = nx.DiGraph([(a, b) for b, earlier in enumerate(order.before) for a in earlier])
    graph.add_nodes_from(range(len(order.events)))
    reach = nx.transitive_closure_dag(graph)
    pairs = set()
    for a, first in enumerate(order.events):
        for b, second in enumerate(order.events):
            if (
                a < b
                and first.ref.rank == second.ref.rank
                and not reach.has_edge(a, b)
                and not reach.has_edge(b, a)
            ):
                (r1, w1), (r2, w2) = _access(first), _access(second)
                if w1 & (r2 | w2) or r1 & w2:
                    pairs.add((first.ref, second.ref))
    return pairs


def _access(event):
    reads, writes = set(event.transfer.source()), set(event.transfer.target())
    return reads | writes if event.transfer.accumulates else reads, writes


def test_races_agree_with_trying_every_pair():
    clean = 0
    for seed in range(300):
        order = order_of(load(_random_program(seed), True))
        assert not order.circular
        slow, fast = _every_pair(order), {(race.first, race.second) for race in races(order)}
        assert fast <= slow
        assert bool(fast) == bool(slow), seed
        clean += not slow
    assert clean > 5  # both kinds were tried


def test_programs_without_races_compute_the_same_in_every_order():
    differ = 0
    for seed in range(200):
        made = _random_program(seed)
        inputs = [np.arange(8) + 10**rank for rank in range(3)]
        runs = [run(made, inputs, seed=order) for order in (None, 1, 2, 3)]
        ends = {tuple(one.memory(rank).tobytes() for rank in range(3)) for one in runs}
        assert len(ends) == 1 or races(order_of(load(made, True))), seed
        differ += len(ends) > 1
    assert differ > 5  # and races do show


def test_thousands_of_steps_full_of_races():
    n, turns = 16, 16
    peers = [[p for p in range(n) if p != r] for r in range(n)]
    ranks = [
        [(p, p, 0, [step(op, (p + t) % 64) for t in range(turns // 2) for op in "sr"]) for p in peers[r]]
        for r in range(n)
    ]
    order = order_of(load(program(64, ranks), True))
    assert len(order.events) == n * (n - 1) * turns
    assert races(order)
