"""For which calls a runtime picks a file: placement, range of bytes and divisibility of the count."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .profiles import Profile
from .program import Program

_ELEMENT_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Selection:
    """The calls that one file is for; every other call silently gets NCCL's own algorithm.

    Attributes:
        ranks: size of the communicator.
        collective: the `coll` word.
        in_place: whether calls with one buffer for input and output are taken.
        out_of_place: whether calls with two buffers are.
        min_bytes: the smallest size in bytes.
        last_bytes: the largest size in bytes, itself included; None means no limit.
        multiple: the element count must be a multiple of this (`nchunksperloop`).
    """

    ranks: int
    collective: str
    in_place: bool
    out_of_place: bool
    min_bytes: int
    last_bytes: int | None
    multiple: int

    def takes(self, count: int, element_bytes: int, in_place: bool = True) -> bool:
        """Whether a call of `count` elements (of all ranks, for AllGather and the like) is taken."""
        size = count * element_bytes
        return (
            (self.in_place if in_place else self.out_of_place)
            and count > 0
            and count % self.multiple == 0
            and self.min_bytes <= size
            and (self.last_bytes is None or size <= self.last_bytes)
        )

    def smallest(self, element_bytes: int) -> int | None:
        """The smallest size in bytes that is taken for elements of that size; None if there is none."""
        unit = self.multiple * element_bytes
        size = max(1, -(-self.min_bytes // unit)) * unit
        return size if self.last_bytes is None or size <= self.last_bytes else None

    def largest(self, element_bytes: int) -> int | None:
        """The largest size in bytes that is taken for elements of that size; None if no limit or none."""
        if self.last_bytes is None or self.smallest(element_bytes) is None:
            return None
        unit = self.multiple * element_bytes
        return self.last_bytes // unit * unit

    @property
    def empty(self) -> bool:
        """Whether no call at all is taken."""
        sizes = [self.smallest(element_bytes) for element_bytes in _ELEMENT_SIZES]
        return not (self.in_place or self.out_of_place) or all(size is None for size in sizes)

    def same_calls(self, other: Selection) -> bool:
        """Whether both take exactly the same calls, even if their limits are written differently."""

        def calls(one: Selection) -> tuple[object, ...]:
            ends = [(one.smallest(size), one.largest(size)) for size in _ELEMENT_SIZES]
            return one.ranks, one.collective, one.in_place, one.out_of_place, one.multiple, ends

        return calls(self) == calls(other)

    def overlap(self, other: Selection) -> Selection | None:
        """The calls that both take; None if there is none."""
        if (self.ranks, self.collective) != (other.ranks, other.collective):
            return None
        limits = [last for last in (self.last_bytes, other.last_bytes) if last is not None]
        both = Selection(
            self.ranks,
            self.collective,
            self.in_place and other.in_place,
            self.out_of_place and other.out_of_place,
            max(self.min_bytes, other.min_bytes),
            min(limits, default=None),
            math.lcm(self.multiple, other.multiple),
        )
        return None if both.empty else both

    def describe(self) -> str:
        """The calls in words and numbers, as `allreduce of 4 ranks, in place, 28 B to 1.0 GiB, ...`."""
        ways = [word for word, on in (("in", self.in_place), ("out of", self.out_of_place)) if on]
        where = f"{' or '.join(ways)} place"
        top = "any size" if self.last_bytes is None else f"{self.last_bytes} bytes"
        example = self.smallest(4)
        sizes = "" if example is None else f" (float32: {example}, {example + 4 * self.multiple}, ... bytes)"
        return (
            f"{self.collective} of {self.ranks} ranks, {where}, {self.min_bytes} bytes to {top}, "
            f"a multiple of {self.multiple} elements{sizes}"
        )


def selection_of(program: Program, profile: Profile) -> Selection:
    """For which calls a runtime picks a program that it can load."""
    last: int | None = program.max_bytes - (0 if profile.max_is_inclusive else 1)
    if program.max_bytes == 0 and profile.zero_max_is_unlimited:
        last = None
    return Selection(
        ranks=program.ranks,
        collective=program.collective,
        in_place=program.in_place,
        out_of_place=not program.in_place if profile.one_placement else program.out_of_place,
        min_bytes=program.min_bytes,
        last_bytes=last,
        multiple=program.chunks,
    )
