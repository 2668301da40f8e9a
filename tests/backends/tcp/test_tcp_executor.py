"""Any schedule, size, type and operation over real sockets: bit for bit what the rounds give one by one."""

import socket
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tcp_fleet import SECONDS, executor, modelled, together

from stragglar.backends.elements import DTYPES, OPS, numpy_dtype, rank_input
from stragglar.backends.recording import Recording
from stragglar.backends.tcp import progress
from stragglar.backends.tcp.executor import Window
from stragglar.backends.tcp.together import gather
from stragglar.schedules import RunError, UsageError
from stragglar.schedules.ir import Phase, Schedule
from stragglar.schedules.ring import ring_all_reduce
from stragglar.synth.families import synthesize
from stragglar.synth.request import Request

LEAST = Window(ahead=0, scratch=0, least=0)
WINDOWS = [Window(), LEAST, Window(ahead=1 << 30, scratch=0, least=1 << 30), Window(ahead=100, least=64)]


def made(algorithm, ranks, late, refine=None):
    return synthesize(Request(ranks=ranks, late=late, algorithm=algorithm, refine=refine))


@st.composite
def schedules(draw):
    ranks = draw(st.integers(2, 7))
    algorithm = draw(st.sampled_from(["stragglar", "stragglar", "ring", "rhd", "direct", "tree"]))
    if algorithm != "stragglar":
        return made(algorithm, ranks, ())
    late = (draw(st.integers(0, ranks - 1)),)
    if ranks > 3 and draw(st.booleans()):
        late = tuple(sorted({*late, draw(st.integers(0, ranks - 1))}))
    return made("stragglar", ranks, late, draw(st.sampled_from([None, 2, 3])))


def results(schedule, inputs, op, window, runs=1):
    def part(mesh, rank):
        own = executor(mesh, schedule, len(inputs[0]), inputs[0].dtype.name, op, window=window)
        for _ in range(runs):
            buffer = inputs[rank].copy()
            own.run(buffer)
        return buffer

    return together(schedule.ranks, part)


def assert_same(found, wanted):
    for rank, (got, right) in enumerate(zip(found, wanted, strict=True)):
        if isinstance(got, Exception):
            raise got
        assert got.tobytes() == right.tobytes(), rank


@settings(max_examples=60)
@given(
    schedule=schedules(),
    count=st.one_of(st.integers(1, 40), st.integers(1000, 40000)),
    dtype=st.sampled_from(sorted(DTYPES)),
    op=st.sampled_from(sorted(OPS)),
    window=st.sampled_from(WINDOWS),
)
def test_every_result_is_that_of_the_rounds_bit_for_bit(schedule, count, dtype, op, window):
    # Sizes below the number of chunks have empty chunks, which are left out on both ends.
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    inputs = [rank_input(rank, schedule.ranks, count, dtype, op) for rank in range(schedule.ranks)]
    assert_same(results(schedule, inputs, op, window), modelled(schedule, inputs, op))


@pytest.mark.parametrize("window", WINDOWS)
def test_messages_longer_than_every_buffer(window):
    # Swaps of megabytes: both ends send and receive the same chunks at a time.
    schedule, count = made("stragglar", 4, (2,)), 3_000_001
    inputs = [rank_input(rank, 4, count, "f32", "sum") for rank in range(4)]
    assert_same(results(schedule, inputs, "sum", window, runs=2), modelled(schedule, inputs, "sum"))


@pytest.mark.parametrize("window", WINDOWS)
def test_rounds_with_many_messages_a_rank_end(window):
    # All to all in one round, and a rotation in which everybody overwrites what it is still sending.
    ranks = 5
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    gather = [(a, b, a, 1, 1) for a, b in pairs]
    scatter = [(a, b, b, 1, 0) for a, b in pairs]
    schedule = Schedule(ranks, (), ranks, (Phase.build("post", [scatter, gather]),))
    turn = [[(a, (a + 1) % ranks, 0, ranks, 1) for a in range(ranks)]] * ranks
    turned = Schedule(ranks, (), ranks, (Phase.build("post", turn),))
    for plan in (schedule, turned):
        inputs = [rank_input(rank, ranks, 700_003, "i32", "sum") for rank in range(ranks)]
        assert_same(results(plan, inputs, "sum", window), modelled(plan, inputs, "sum"))


def test_schedules_take_turns_on_one_mesh_and_late_ranks_are_waited_for():
    plans = [made("stragglar", 5, (4,), 2), made("stragglar", 5, (1, 3)), ring_all_reduce(5)]
    inputs = [rank_input(rank, 5, 5001, "f64", "sum") for rank in range(5)]

    def part(mesh, rank):
        executors = [executor(mesh, plan, 5001, "f64") for plan in plans]
        found = []
        for _ in range(3):
            for own in executors:
                time.sleep(0.003 * rank)
                buffer = inputs[rank].copy()
                own.run(buffer)
                found.append(buffer)
        return found

    outcomes = together(5, part)
    for turn in range(9):
        assert_same([found[turn] for found in outcomes], modelled(plans[turn % 3], inputs, "sum"))


def test_connections_are_needed_to_the_peers_of_the_schedule_only():
    plan = ring_all_reduce(5)
    inputs = [rank_input(rank, 5, 100, "f32", "sum") for rank in range(5)]

    def part(mesh, rank):
        assert len(mesh.peers) == 2
        buffer = inputs[rank].copy()
        executor(mesh, plan, 100).run(buffer)
        with pytest.raises(UsageError, match="is not connected with rank"):
            executor(mesh, made("stragglar", 5, (0,)), 100)
        return buffer

    found = together(5, part, peers=lambda rank: [(rank - 1) % 5, (rank + 1) % 5])
    assert_same(found, modelled(plan, inputs, "sum"))


def test_what_does_not_fit_is_refused_and_leaves_the_mesh_usable():
    def part(mesh, rank):
        own = executor(mesh, ring_all_reduce(2), 10)
        for bad in (np.ones(9, np.float32), np.ones(10), np.ones(20, np.float32)[::2]):
            with pytest.raises(UsageError, match="10 contiguous elements of float32"):
                own.run(bad)
        with pytest.raises(UsageError, match=f"rank {rank} of 3 was given to rank {rank} of 2"):
            executor(mesh, ring_all_reduce(3), 10)
        buffer = np.ones(10, np.float32)
        own.run(buffer)
        return buffer.tolist()

    assert together(2, part) == [[2.0] * 10] * 2


@pytest.mark.parametrize("gated", [True, False])
def test_no_data_is_sent_to_a_rank_that_has_not_asked_for_it(gated, monkeypatch):
    if not gated:
        # The same test must fail without grants, or it shows nothing.
        monkeypatch.setattr(progress.Progress, "_take_grant", lambda self, index: True)
    seen = {}
    late, asleep = threading.Event(), threading.Event()

    def part(mesh, rank):
        own = executor(mesh, ring_all_reduce(2), 1 << 18)
        if rank == 1:
            late.wait(10)
            seen["early"] = readable(mesh.data[0])
            asleep.set()
        else:
            threading.Timer(0.3, late.set).start()
        own.run(np.ones(1 << 18, np.float32))

    together(2, part)
    assert asleep.is_set() and seen["early"] == (not gated)


def readable(connection):
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


@pytest.mark.parametrize("what", ["schedule", "count", "dtype", "op"])
def test_ranks_that_run_different_things_are_named(what):
    def part(mesh, rank):
        odd = rank == 1
        plan = made("stragglar", 3, (0,), 3) if odd and what == "schedule" else made("stragglar", 3, (0,))
        count, dtype = 101 if odd and what == "count" else 100, "i32" if odd and what == "dtype" else "f32"
        own = executor(mesh, plan, count, dtype, "max" if odd and what == "op" else "sum", wait_seconds=5)
        own.run(np.ones(count, numpy_dtype(dtype)))

    messages = [str(outcome) for outcome in together(3, part)]
    assert all(message.startswith("ranks ") for message in messages), messages
    assert all("were given different schedules, sizes or types" in message for message in messages)
    assert all("1" in message.split("were")[0] for message in messages)


def test_a_rank_that_leaves_is_named_by_all_and_the_mesh_stays_unusable():
    def part(mesh, rank):
        own = executor(mesh, ring_all_reduce(4), 1 << 18)
        own.run(np.ones(1 << 18, np.float32))
        if rank == 2:
            gather(mesh, b"", SECONDS)
            return None
        with pytest.raises(RunError) as first:
            # Whoever learns of it first tells the others, wherever they are.
            gather(mesh, b"", SECONDS)
            own.run(np.ones(1 << 18, np.float32))
        with pytest.raises(RunError) as second:
            own.run(np.ones(1 << 18, np.float32))
        assert str(first.value) == str(second.value)
        return str(first.value)

    messages = [message for message in together(4, part) if message is not None]
    assert len(messages) == 3 and all(m.startswith("rank 2 has died or left") for m in messages), messages


def test_a_rank_that_fails_says_why_and_all_others_say_the_same():
    def part(mesh, rank):
        own = executor(mesh, ring_all_reduce(4), 1000)
        if rank == 3:
            error = RunError("rank 3 is out of luck")
            mesh.abort(error)
            raise error
        own.run(np.ones(1000, np.float32))

    assert {str(outcome) for outcome in together(4, part)} == {"rank 3 is out of luck"}


def test_a_rank_that_does_not_come_is_named_and_so_is_the_end_of_a_chain_of_waits():
    plan = made("stragglar", 4, (3,))
    waits, over = threading.Barrier(3), threading.Event()

    def part(mesh, rank):
        own = executor(mesh, plan, 1000, wait_seconds=0.8)
        if rank == 1:
            over.wait(20)
            return
        try:
            own.run(np.ones(1000, np.float32))
        finally:
            waits.wait(20)
            over.set()

    outcomes = [str(outcome) for outcome in together(4, part)]
    assert outcomes.pop(1) == "None"
    # They may give up at the same moment, each with its own wait: the culprit is the same.
    assert all(o.startswith("rank 1 does not respond: rank ") and " round " in o for o in outcomes), outcomes


def test_a_rank_that_answers_but_does_not_move_is_held_responsible():
    # Rank 2 waits for rank 1, which runs something in which it waits for nobody but rank 0.
    pair = Schedule(3, (), 1, (Phase.build("post", [[(0, 1, 0, 1, 0)], [(1, 2, 0, 1, 1)]]),))

    def part(mesh, rank):
        own = executor(mesh, pair, 1000, wait_seconds=1.0 if rank == 2 else 9.0)
        if rank == 0:
            # It answers questions, as a rank does that waits for somebody else.
            until = time.monotonic() + 3
            while time.monotonic() < until:
                mesh.wait(0.05, {})
                for control in mesh.controls.values():
                    while control.asked:
                        control.asked -= 1
                        control.send(b"a", (-1).to_bytes(4, "big", signed=True) * 3)
        own.run(np.ones(1000, np.float32))

    for outcome in together(3, part)[1:]:
        assert str(outcome).startswith("rank 0 holds up the others: rank 2 waited")
        assert str(outcome).endswith("for rank 1 in post round 1")


def test_a_recording_has_every_message_and_every_use_of_one():
    plan = made("stragglar", 4, (3,))

    def part(mesh, rank):
        notes = Recording(rank)
        own = executor(mesh, plan, 70_000, recording=notes)
        gather(mesh, b"", SECONDS)
        time.sleep(0.2 * (rank == 3))
        own.run(np.ones(70_000, np.float32))
        return notes.take()

    outcomes = together(4, part)
    assert any(e.kind == "wait" for events in outcomes for e in events)
    for rank, events in enumerate(outcomes):
        assert {e.kind for e in events} >= {"send", "receive"}
        assert all(e.rank == rank and e.start <= e.end and e.peer != rank for e in events)
        found = sorted((e.phase, e.round, e.kind == "receive", e.peer, e.first, e.count)
                       for e in events if e.kind in ("send", "receive"))  # fmt: skip
        wanted = []
        for phase in plan.phases:
            for where in range(len(phase)):
                for t in phase.transfers(where):
                    if rank in (t.src, t.dst):
                        peer = t.src if t.dst == rank else t.dst
                        wanted.append((phase.name, where, t.dst == rank, peer, t.first, t.count))
        assert found == sorted(wanted)
        reduced = {(e.phase, e.round) for e in events if e.kind == "reduce"}
        assert reduced or rank == 3
