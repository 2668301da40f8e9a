"""The post phase as a CP-SAT model: which values sit where before each round, who sends and receives what.

A chunk has two *halves*: the partial sum of the early ranks, which starts at its owner, and the late
rank's raw contribution, which starts there. A rank holds of a chunk one half, both (then the chunk is
finished), or nothing of use. A transfer moves all that its sender holds of one chunk, and afterwards the
receiver holds what either held: two different halves add up, anything else is a copy. So halves may be
relayed, duplicated and merged anywhere and in any order. Only three things are fixed: one send and one
receive a rank and round, that a finished chunk cannot be taken apart again, and that no rank sends its
half of a chunk in the round in which the finished chunk replaces it (the validator's `send-of-arriving`).

For one chunk, value and round any sender may serve any receiver, so the free model only counts both;
the pairwise one also says who is paired with whom.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise, product
from typing import Any

BOTH, PARTIAL, RAW = VALUES = (0, 1, 2)

Literal = Any  # ortools' own types: an IntVar, its negation, or a constant
Move = tuple[int, int, int]
"""Source, destination, chunk."""


class PostModel:
    """The CP-SAT model of a post phase of T rounds; `model` is what a solver takes.

    Args:
        early: N >= 1 early ranks; the late rank is N, and chunk c belongs to rank c mod N.
        chunks: k >= 1.
        rounds: T >= 1.
        paired: whether a rank may send only to the rank it receives from (or one of the two rests).
    """

    def __init__(self, early: int, chunks: int, rounds: int, paired: bool) -> None:
        from ortools.sat.python import cp_model

        self.model = cp_model.CpModel()
        self.early, self.chunks, self.rounds = early, chunks, rounds
        self.ranks = early + 1
        # [rank, chunk, round]: whether that half is there before the round.
        self.partial = self._half(lambda chunk: chunk % early)
        self.raw = self._half(lambda _: early)
        keys = list(product(VALUES, range(self.ranks), range(chunks), range(rounds)))
        self.sends = {key: self._literal() for key in keys}
        self.receives = {key: self._literal() for key in keys}
        for rank, chunk, r in product(range(self.ranks), range(chunks), range(rounds)):
            self._holding(rank, chunk, r)
        for r in range(rounds):
            self._ports(r)
        self.pairs: dict[tuple[int, int, int], Literal] = {}
        if paired:
            for r in range(rounds):
                self._pairing(r)
        self._order_chunks()
        self._order_idle_owners()

    def moves(self, value_of: Any) -> list[list[Move]]:  # noqa: ANN401 (a CpSolver)
        """The transfers of each round in a solution; `value_of` is the solver."""
        found: list[list[Move]] = []
        for r in range(self.rounds):
            found.append([])
            for value, chunk in product(VALUES, range(self.chunks)):
                of = [(value, rank, chunk, r) for rank in range(self.ranks)]
                sources = [key[1] for key in of if value_of.boolean_value(self.sends[key])]
                targets = [key[1] for key in of if value_of.boolean_value(self.receives[key])]
                if self.pairs:
                    targets = [self._partner(source, r, value_of) for source in sources]
                found[r] += [(*ends, chunk) for ends in zip(sources, targets, strict=True)]
        return found

    def _partner(self, rank: int, r: int, value_of: Any) -> int:  # noqa: ANN401
        others = (other for other in range(self.ranks) if other != rank)
        return next(o for o in others if value_of.boolean_value(self.pairs[rank, o, r]))

    def _literal(self) -> Literal:
        return self.model.new_bool_var("")

    def _half(self, home: Any) -> dict[tuple[int, int, int], Literal]:  # noqa: ANN401
        """One half of every chunk: at `home(chunk)` from the start, everywhere in the end."""
        held: dict[tuple[int, int, int], Literal] = {}
        for rank, chunk, r in product(range(self.ranks), range(self.chunks), range(self.rounds + 1)):
            if rank == home(chunk) or r == self.rounds:
                held[rank, chunk, r] = self.model.new_constant(1)
            else:
                held[rank, chunk, r] = self.model.new_constant(0) if r == 0 else self._literal()
        return held

    def _holding(self, rank: int, chunk: int, r: int) -> None:
        """A value sent is what is held; a value received is new; halves come by receiving only, and stay."""
        model, at = self.model, (rank, chunk, r)
        partial, raw = self.partial[at], self.raw[at]
        sends, receives = ([of[(value, *at)] for value in VALUES] for of in (self.sends, self.receives))
        for value, wanted in ((BOTH, (partial, raw)), (PARTIAL, (partial, ~raw)), (RAW, (raw, ~partial))):
            for literal in wanted:
                model.add_implication(sends[value], literal)
        model.add_bool_or(~receives[BOTH], ~partial, ~raw)
        # A schedule sends no half of a chunk in the round that replaces it by the finished chunk.
        model.add_implication(receives[BOTH], ~sends[PARTIAL])
        model.add_implication(receives[BOTH], ~sends[RAW])
        for half, value in ((self.partial, PARTIAL), (self.raw, RAW)):
            before, after = half[at], half[rank, chunk, r + 1]
            model.add_implication(receives[value], ~before)
            for cause in (before, receives[value], receives[BOTH]):
                model.add_implication(cause, after)
            model.add_bool_or(~after, before, receives[value], receives[BOTH])

    def _ports(self, r: int) -> None:
        for of, rank in product((self.sends, self.receives), range(self.ranks)):
            self.model.add_at_most_one(of[v, rank, c, r] for v, c in product(VALUES, range(self.chunks)))
        for value, chunk in product(VALUES, range(self.chunks)):
            sent, received = (
                sum(of[value, rank, chunk, r] for rank in range(self.ranks))
                for of in (self.sends, self.receives)
            )
            self.model.add(sent == received)

    def _pairing(self, r: int) -> None:
        """Who is paired in round r; what one of a pair sends is what the other receives."""
        for one, other in combinations(range(self.ranks), 2):
            self.pairs[one, other, r] = self.pairs[other, one, r] = self._literal()
        for rank in range(self.ranks):
            others = [other for other in range(self.ranks) if other != rank]
            paired = [self.pairs[rank, other, r] for other in others]
            self.model.add_at_most_one(paired)
            for value, chunk in product(VALUES, range(self.chunks)):
                for there, back in ((self.sends, self.receives), (self.receives, self.sends)):
                    busy = there[value, rank, chunk, r]
                    self.model.add_bool_or(~busy, *paired)
                    for other, pair in zip(others, paired, strict=True):
                        self.model.add_bool_or(~pair, ~busy, back[value, other, chunk, r])

    def _order_chunks(self) -> None:
        """Symmetry: one owner's chunks are interchangeable, and so are owners of equally many.

        So let an owner's chunks leave the late rank in the order of their numbers, and let such owners'
        first chunks do so too.
        """
        more = self.chunks % self.early
        firsts = (range(min(more, self.chunks)), range(more, min(self.early, self.chunks)))
        ordered = [(c, c + self.early) for c in range(self.chunks - self.early)]
        ordered += [neighbours for group in firsts for neighbours in pairwise(group)]
        left = [self._left(chunk) for chunk in range(self.chunks)]
        for first, second in ordered:
            for r in range(self.rounds):
                self.model.add_implication(left[second][r + 1], left[first][r])

    def _left(self, chunk: int) -> list[Literal]:
        """Before each round, whether the raw half of the chunk is anywhere but at the late rank."""
        others, moments = range(self.early), range(self.rounds + 1)
        return [self._any(self.raw[rank, chunk, r] for rank in others) for r in moments]

    def _any(self, literals: Iterable[Literal]) -> Literal:
        literals, result = list(literals), self._literal()
        for literal in literals:
            self.model.add_implication(literal, result)
        self.model.add_bool_or(~result, *literals)
        return result

    def _order_idle_owners(self) -> None:
        """Symmetry: early ranks that own nothing get the raw half of chunk 0 in their own order."""
        for rank, r in product(range(self.chunks, self.early - 1), range(self.rounds + 1)):
            self.model.add_implication(self.raw[rank + 1, 0, r], self.raw[rank, 0, r])
