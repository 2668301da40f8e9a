"""An AllReduce followed with Python multisets, one chunk of one message at a time: the second opinion.

It shares nothing with `schedules/validate.py` but the words of the rules.
"""

from __future__ import annotations

from collections import Counter


def follow(schedule):
    """The contents of every (rank, chunk) at the end, and all faults: (rule, phase, round, rank, chunk)."""
    ranks, chunks = range(schedule.ranks), range(schedule.chunks)
    held = {(r, c): Counter([r]) for r in ranks for c in chunks}
    faults = []
    for index, phase in enumerate(schedule.phases):
        gone = {r for group in schedule.arrivals[index:] for r in group}
        for where in range(len(phase)):
            transfers = phase.transfers(where)
            faults += [(rule, phase.name, where, *at) for rule, *at in _round_faults(transfers, held, gone)]
            before = dict(held)
            for t in transfers:
                for c in t.chunks:
                    incoming = before[t.src, c]
                    held[t.dst, c] = incoming if t.op == 1 else before[t.dst, c] + incoming
    last = schedule.phases[-1].name
    faults += [("incomplete", last, -1, *cell) for cell, parts in held.items() if set(parts) != set(ranks)]
    return held, faults


def _round_faults(transfers, held, gone):
    for rule, ends in (("one-send", [t.src for t in transfers]), ("one-receive", [t.dst for t in transfers])):
        yield from ((rule, rank, -1) for rank, times in Counter(ends).items() if times > 1)
    replaced = {(t.dst, c) for t in transfers if t.op == 1 for c in t.chunks}
    for t in transfers:
        yield from (("late-untouched", rank, t.first) for rank in (t.src, t.dst) if rank in gone)
        for c in t.chunks:
            if (t.src, c) in replaced:
                yield ("send-of-arriving", t.src, c)
            if t.op == 0 and set(held[t.src, c]) & set(held[t.dst, c]):
                yield ("double-count", t.dst, c)


def is_allreduce(schedule, held):
    """Whether every rank ends with every part of every chunk exactly once."""
    wanted = Counter(range(schedule.ranks))
    return all(parts == wanted for parts in held.values())
