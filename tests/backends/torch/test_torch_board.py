"""Who is late, decided by arrivals: all ranks agree whatever the timing, and nothing is left behind."""

import functools
import importlib.util
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stragglar.backends.torch import HOW

if importlib.util.find_spec("torch") is None:
    pytest.skip(HOW, allow_module_level=True)

import torch.distributed as dist

from stragglar.backends.torch import shared_board
from stragglar.backends.torch.board import StoreBoard
from stragglar.backends.torch.shared_board import SharedBoard, make_board

from .forked import run

CALLS = 12
SHARED = Path("/dev/shm")
needs_shm = pytest.mark.skipif(not SHARED.is_dir(), reason="needs /dev/shm")
both = pytest.mark.parametrize("shared", [False, pytest.param(True, marks=needs_shm)])


def decisions(ranks, threshold, late_of, delay, shared, late_ranks=1):
    """What each rank was told in each call; ranks are threads with a barrier for the all_reduce."""
    store, after = dist.HashStore(), threading.Barrier(ranks)
    told = [[] for _ in range(ranks)]

    def rank(number):
        board = make_board(store, number, ranks, late_ranks, 20.0, shared=shared)
        assert isinstance(board, SharedBoard if shared else StoreBoard)
        rng = random.Random(number)
        for call in range(CALLS):
            time.sleep(delay if number in late_of(call) else rng.random() * 1e-3)
            told[number].append(board.arrive(threshold))
            after.wait()
        board.close()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ours == told[0] and len(ours) == CALLS for ours in told)
    return told[0], store.num_keys()


@both
@pytest.mark.parametrize("ranks", [2, 3, 9])
def test_the_late_rank_is_found_and_all_agree(ranks, shared):
    told, keys = decisions(ranks, 0.0, lambda call: (call % ranks,), 0.05, shared)
    right = sum(late == (call % ranks,) for call, late in enumerate(told))
    assert right > CALLS * 0.7, told  # a busy machine may delay another thread more
    assert keys <= 7


@both
@pytest.mark.parametrize("ranks", [4, 65])
def test_several_late_ranks_are_found(ranks, shared):
    pairs = [(call % ranks, (call + ranks // 2) % ranks) for call in range(CALLS)]
    told, keys = decisions(ranks, 0.0, lambda call: pairs[call], 0.1, shared, late_ranks=2)
    assert all(len(late) == 2 for late in told)
    right = sum(late == tuple(sorted(pair)) for late, pair in zip(told, pairs, strict=True))
    assert right > CALLS * 0.7, told
    assert keys <= 10


@both
def test_of_several_that_may_be_late_only_those_are_who_do_not_come(shared):
    told, _ = decisions(5, 0.05, lambda call: (call % 5,), 0.2, shared, late_ranks=3)
    assert sum(late == (call % 5,) for call, late in enumerate(told)) > CALLS * 0.7, told


@both
@pytest.mark.parametrize(("ranks", "late_ranks"), [(2, 1), (5, 1), (5, 2)])
def test_all_agree_where_it_is_a_close_race(ranks, late_ranks, shared):
    decisions(ranks, 0.001, lambda call: (), 0.0, shared, late_ranks)


@both
def test_nobody_is_late_within_the_threshold(shared):
    told, _ = decisions(4, 5.0, lambda call: (call % 4,), 0.01, shared)
    assert told == [()] * CALLS


@both
@pytest.mark.parametrize("interrupted", [False, True])
def test_fewer_than_all_but_one_is_an_error(shared, interrupted):
    store, errors = dist.HashStore(), []

    def rank(number):
        board = make_board(store, number, 4, 1, 20.0 if interrupted else 0.5, lambda: interrupted, shared)
        if number < 2:
            try:
                board.arrive(0.0)
            except RuntimeError as error:
                errors.append(str(error))

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(4)]
    started = [thread.start() for thread in threads]
    for thread in threads:
        thread.join(15.0)
    assert len(started) == 4 and len(errors) == 2, errors


def racing(rank, ranks, groups, calls):
    """Boards of several groups in turn, in processes."""
    store = dist.distributed_c10d._get_default_store()
    boards = [make_board(dist.PrefixStore(f"g{g}", store), rank, ranks, 1, 20.0) for g in range(groups)]
    assert all(isinstance(board, SharedBoard) for board in boards)
    mapped = Path("/proc/self/maps").read_text().splitlines()
    left = [line for line in mapped if "/stragglar-" in line and not line.endswith("(deleted)")]
    assert sum("/stragglar-" in line for line in mapped) == groups
    rng, told = random.Random(rank), []
    for call in range(calls):
        for board in boards:
            if rng.random() < 0.3:
                time.sleep(rng.random() * 2e-3)
            told.append(board.arrive(0.0 if call % 2 else 5e-4))
            dist.barrier()
    return told, left


@needs_shm
def test_processes_agree_in_several_groups_at_once_and_leave_no_file():
    results = run(4, racing, 4, 3, 40)
    told, _ = results[0]
    assert all(ours == told for ours, _ in results) and len(told) == 120
    assert len(set(told)) > 1
    assert not any(left for _, left in results), "the name is gone before the first call"


def parted(rank, ranks):
    """One rank is on another host: it has booted another time, or sees another folder."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 2:
        shared_board._boot = lambda: "another host"
    board = make_board(dist.PrefixStore("a", store), rank, ranks, 1, 20.0)
    other = make_board(dist.PrefixStore("b", store), rank, ranks, 1, 20.0, shared=False)
    told = [board.arrive(0.0)]
    dist.barrier()
    return type(board).__name__, type(other).__name__, told


def test_ranks_of_several_hosts_take_the_store():
    results = run(3, parted, 3)
    assert {result[:2] for result in results} == {("StoreBoard", "StoreBoard")}
    assert all(result[2] == results[0][2] for result in results)


@needs_shm
def test_a_file_of_the_same_name_is_not_taken_for_it(tmp_path):
    """Another container may have such a file: the token tells."""
    file, path = shared_board._create(3)
    token = shared_board._token(file)
    try:
        found = shared_board._open(shared_board._boot(), str(path), token)
        assert found is not None
        found.close()
        assert shared_board._open(shared_board._boot(), str(path), token[:-1] + "x") is None
        assert shared_board._open("elsewhere", str(path), token) is None
        assert shared_board._open(shared_board._boot(), str(path) + "-", token) is None
        assert shared_board._open(shared_board._boot(), "", "") is None
    finally:
        file.close()
        path.unlink()


@needs_shm
def test_without_room_in_shared_memory_the_store_is_taken(monkeypatch, tmp_path):
    monkeypatch.setattr(shared_board, "_FOLDER", tmp_path / "missing")
    assert isinstance(make_board(dist.HashStore(), 0, 1, 1, 5.0), StoreBoard)


DIES_LOCKED = """
import fcntl, os, sys
sys.stdin.readline()
file = open(sys.argv[1], "r+b")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.readline()
os._exit(1)
"""


@needs_shm
def test_a_rank_that_dies_with_the_lock_does_not_keep_it():
    file, path = shared_board._create(2)
    child = functools.partial(subprocess.Popen, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child([sys.executable, "-c", DIES_LOCKED, str(path)]) as holder:
        print(file=holder.stdin, flush=True)
        assert holder.stdout.readline() == "locked\n"
        path.unlink()
        board = SharedBoard(file, 0, 2, 1, 0.2)
        with pytest.raises(RuntimeError, match="locked"):
            board.arrive(0.0)
        print(file=holder.stdin, flush=True)
        holder.wait()
    assert board.arrive(0.0) == (1,)
    board.close()
    assert os.path.lexists(path) is False
