"""The attributes of an MSCCL file as data: one table an element, with how each value is read.

The reader raises the first fault found with these tables; `rules.py` lists them all. Values are
read the way the runtimes read them (C `strtol` with base 0: decimal, hexadecimal, octal), except
that text which is no number at all is a fault here and a silent 0 there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from .program import Buffer, OpCode

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
DEFAULT_MAX_BYTES = 2**27  # what microsoft/msccl takes where a file has no maxBytes

_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,22})")


@dataclass(frozen=True, slots=True)
class Node:
    """One element as read: its attributes are unparsed text, its children in file order."""

    name: str
    line: int
    attributes: dict[str, str]
    children: list[Node]

    def named(self, name: str) -> Iterator[Node]:
        """The direct children of that element name."""
        return (child for child in self.children if child.name == name)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an element cannot be read: which attribute on which line, and what was expected."""

    rule: str
    line: int
    element: str
    attribute: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: <{self.element}> {self.attribute}: {self.message}"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: its name, how its value is checked and what a file without it means.

    `check` returns what is wrong with a value, or an empty string. `default` is None where a file
    must have the attribute.
    """

    name: str
    check: Callable[[str], str]
    default: str | None = None


@lru_cache(maxsize=4096)  # a file says the same few numbers a million times
def to_int(value: str) -> int:
    """The number that C's `strtol(value, NULL, 0)` reads.

    Raises:
        ValueError: the text is no number, or has trailing text that strtol would drop.
    """
    if not _NUMBER.fullmatch(value):
        raise ValueError(value)
    digits = value.lstrip("+-")
    base = 16 if digits[:2].lower() == "0x" else 8 if digits[0] == "0" and len(digits) > 1 else 10
    return int(value, base)


def integer(low: int, high: int) -> Callable[[str], str]:
    """A check that a value is a whole number in low..high."""

    def check(value: str) -> str:
        try:
            number = to_int(value)
        except ValueError:
            return f"{value[:40]!r} is not a whole number; write decimal digits"
        return "" if low <= number <= high else f"{number} is outside {low}..{high}"

    return check


def one_of(*words: str) -> Callable[[str], str]:
    """A check that a value is one of the words, letter case included."""

    def check(value: str) -> str:
        return "" if value in words else f"{value[:40]!r} is not one of {' '.join(words)}"

    return check


def _number_or_text(value: str) -> int | str:
    try:
        return to_int(value)
    except ValueError:
        return value


def _text(value: str) -> str:
    return ""


def _ranks(value: str) -> str:
    return "" if re.fullmatch(r"(\d{1,6}(,\d{1,6})*)?", value, re.ASCII) else "expected ranks, as 3,5"


_int32 = integer(-INT32_MAX - 1, INT32_MAX)
_int64 = integer(-INT64_MAX - 1, INT64_MAX)
_flag = integer(0, 1)
_buffer = one_of(*(buffer.value for buffer in Buffer))

ALGO = (
    Attribute("name", _text, default=""),
    Attribute("proto", one_of("Simple", "LL", "LL128")),
    Attribute("nchannels", _int32),
    Attribute("nchunksperloop", _int32),
    Attribute("ngpus", _int32),
    Attribute("coll", _text),
    Attribute("inplace", _flag),
    # None given: microsoft/msccl has one flag, and uses a file for exactly one of the two ways.
    Attribute("outofplace", _flag, default="-"),
    Attribute("minBytes", _int64, default="0"),
    Attribute("maxBytes", _int64, default=str(DEFAULT_MAX_BYTES)),
    Attribute("late", _ranks, default=""),
)
GPU = tuple(Attribute(name, _int32) for name in ("id", "i_chunks", "o_chunks", "s_chunks"))
TB = tuple(Attribute(name, _int32) for name in ("id", "send", "recv", "chan"))
STEP = (
    Attribute("s", _int32),
    Attribute("type", one_of(*(op.value for op in OpCode))),
    Attribute("srcbuf", _buffer),
    Attribute("srcoff", _int32),
    Attribute("dstbuf", _buffer),
    Attribute("dstoff", _int32),
    Attribute("cnt", _int32),
    Attribute("depid", _int32),
    Attribute("deps", _int32),
    Attribute("hasdep", _flag),
)
ELEMENTS = {"algo": ALGO, "gpu": GPU, "tb": TB, "step": STEP}


def faults(node: Node, required: frozenset[str] = frozenset()) -> Iterator[Fault]:
    """What is wrong with the attributes of one element.

    Args:
        node: an `algo`, `gpu`, `tb` or `step`.
        required: names that must be present even where the reader has a default for them.
    """
    for attribute in ELEMENTS[node.name]:
        value = node.attributes.get(attribute.name)
        if value is None:
            if attribute.default is None or attribute.name in required:
                yield Fault("attribute-missing", node.line, node.name, attribute.name, "missing; add it")
        elif problem := attribute.check(value):
            yield Fault("attribute-value", node.line, node.name, attribute.name, problem)


def all_faults(algo: Node, required: frozenset[str] = frozenset()) -> Iterator[Fault]:
    """What is wrong with the attributes and nesting of a whole file, in file order."""
    yield from faults(algo, required)
    seen: set[int | str] = set()
    for gpu in algo.named("gpu"):
        yield from faults(gpu)
        if (rank := _number_or_text(gpu.attributes.get("id", ""))) in seen:
            yield Fault("gpu-duplicate", gpu.line, "gpu", "id", f"{rank} was already given; keep one")
        seen.add(rank)
        for block in gpu.named("tb"):
            yield from faults(block)
            for step in block.named("step"):
                yield from faults(step)
                if step.children:
                    yield Fault("step-child", step.line, "step", "", "has a child; every parser crashes")
