"""Who is late, decided by arrivals: all ranks agree whatever the timing, and no keys pile up in the store."""

import importlib.util
import random
import threading
import time

import pytest

from stragglar.backends.torch import HOW

if importlib.util.find_spec("torch") is None:
    pytest.skip(HOW, allow_module_level=True)

import torch.distributed as dist

from stragglar.backends.torch.board import Board

CALLS = 30


def decisions(ranks, threshold, late_of, delay):
    """What each rank was told in each call; ranks are threads with a barrier for the all_reduce."""
    store, after = dist.HashStore(), threading.Barrier(ranks)
    told = [[] for _ in range(ranks)]

    def rank(number):
        board, rng = Board(store, number, ranks, threshold, 20.0), random.Random(number)
        for call in range(CALLS):
            time.sleep(delay if late_of(call) == number else rng.random() * 1e-3)
            told[number].append(board.arrive())
            after.wait()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told, store.num_keys()


@pytest.mark.parametrize("ranks", [2, 3, 9])
def test_the_late_rank_is_found_and_all_agree(ranks):
    told, keys = decisions(ranks, 0.0, lambda call: call % ranks, 0.05)
    assert all(ours == told[0] for ours in told)
    right = sum(late == call % ranks for call, late in enumerate(told[0]))
    assert right > CALLS * 0.8, told[0]  # a busy machine may delay another thread more
    assert keys <= 4


@pytest.mark.parametrize("ranks", [2, 5])
def test_all_agree_where_it_is_a_close_race(ranks):
    told, _ = decisions(ranks, 0.001, lambda call: None, 0.0)
    assert all(ours == told[0] for ours in told)


def test_nobody_is_late_within_the_threshold():
    told, _ = decisions(4, 5.0, lambda call: call % 4, 0.01)
    assert told == [[None] * CALLS] * 4


def test_fewer_than_all_but_one_is_an_error():
    board = Board(dist.HashStore(), 0, 4, 0.0, 0.1)
    with pytest.raises(RuntimeError):
        board.arrive()
