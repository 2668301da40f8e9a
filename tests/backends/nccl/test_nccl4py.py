"""The Python program for nccl4py, run by threads on numpy arrays with a stand-in for nccl.core."""

from __future__ import annotations

import contextlib
import importlib.util
import queue
import sys
import threading
import types

import numpy as np
import pytest

from stragglar.backends.elements import expected, rank_input
from stragglar.backends.nccl.nccl4py import write_nccl4py
from stragglar.synth import ALGORITHMS, Request, synthesize

LOCAL = threading.local()


class Communicator:
    """Messages through queues; one that never comes fails the test."""

    def __init__(self, rank, nranks, queues):
        self.rank, self.nranks, self.queues = rank, nranks, queues

    def send(self, data, peer, *, stream):
        assert stream is None
        LOCAL.group.append(lambda: self.queues[self.rank, peer].put(data.copy()))

    def recv(self, data, peer, *, stream):
        def receive():
            incoming = self.queues[peer, self.rank].get(timeout=20)
            assert len(incoming) == len(data) > 0
            data[:] = incoming

        LOCAL.group.append(receive)


@contextlib.contextmanager
def group():
    LOCAL.group = []
    yield
    for step in LOCAL.group:  # the executor names sends first
        step()


@pytest.fixture
def load(monkeypatch):
    def make(schedule):
        core = types.ModuleType("nccl.core")
        core.group = group
        package = types.ModuleType("nccl")
        package.core = core
        monkeypatch.setitem(sys.modules, "nccl", package)
        monkeypatch.setitem(sys.modules, "nccl.core", core)
        program = types.ModuleType("program")
        exec(compile(write_nccl4py(schedule), "program", "exec"), program.__dict__)
        return program

    return make


def reduce_on_threads(program, inputs, op, out_of_place=False):
    n = len(inputs)
    queues = {(a, b): queue.SimpleQueue() for a in range(n) for b in range(n)}
    data = [x.copy() for x in inputs]
    failures = []

    def work(rank):
        try:
            executor = program.Executor(Communicator(rank, n, queues))
            if out_of_place:
                out = np.full_like(data[rank], 99)
                assert executor.all_reduce(data[rank], op, out) is out
                assert np.array_equal(data[rank], inputs[rank])
                data[rank] = out
            else:
                assert executor.all_reduce(data[rank], op) is data[rank]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return data


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("n", [2, 5, 8])
def test_right_results(load, n, name):
    late = () if name in ("ring", "rhd", "direct", "pairwise-exchange") else (n // 2,)
    program = load(synthesize(Request(n, late, name)))
    rng = np.random.default_rng(n)
    for count in (1, 5, 1003):
        for op, function in (("sum", np.add), ("max", np.maximum), ("prod", np.multiply)):
            inputs = [rng.integers(-3, 4, count) for _ in range(n)]
            right = function.reduce(inputs)
            assert all(np.array_equal(x, right) for x in reduce_on_threads(program, inputs, op))


@pytest.mark.parametrize("name", ["f16", "f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("op", ["sum", "max", "min", "prod", "avg"])
def test_every_type_and_reduction_in_and_out_of_place(load, name, op):
    n, count = 5, 103
    program = load(synthesize(Request(n, (2,), refine=2)))
    inputs = [rank_input(r, n, count, name, op) for r in range(n)]
    right = expected(n, count, name, op)
    for out_of_place in (False, True):
        results = reduce_on_threads(program, inputs, op, out_of_place)
        assert all(right.wrong(x) == 0 for x in results)
        assert all(x.tobytes() == results[0].tobytes() for x in results)


def test_bad_requests_are_refused(load):
    program = load(synthesize(Request(2, (1,))))
    executor = program.Executor(Communicator(0, 2, {}))
    with pytest.raises(ValueError, match="'mean' is not known: use one of sum"):
        executor.all_reduce(np.zeros(3), "mean")
    with pytest.raises(ValueError, match="out is float32"):
        executor.all_reduce(np.zeros(3), "sum", np.zeros(3, np.float32))


def test_another_number_of_ranks_is_refused(load):
    program = load(synthesize(Request(4, (1,))))
    with pytest.raises(ValueError, match="for 4 ranks, the communicator has 3"):
        program.Executor(Communicator(0, 3, {}))


def test_the_real_package_has_what_is_used():
    if importlib.util.find_spec("nccl") is None:
        pytest.skip("needs nccl4py: pip install nccl4py")
    import nccl.core as core

    assert callable(core.group) and callable(core.get_unique_id)
    assert {"init", "send", "recv", "rank", "nranks"} <= set(dir(core.Communicator))
