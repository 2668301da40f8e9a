"""Sizes, times and bandwidths as people write them, and back: `64MiB`, `200ms`, `450GiB/s`, `200Gbit/s`.

Numbers are taken exactly (as fractions), never through floats. Which prefix and which unit counts:

- `Ki Mi Gi Ti Pi` are powers of 1024, `k M G T P` powers of 1000; the prefix may be in either case.
- `B` is a byte. A size is in bytes, with or without the `B`; `64M` alone is refused, because some read
  1000 and some 1024 into it, and so is a small `b`, which may mean bits.
- A bandwidth needs its unit: `B` is bytes and `bit` bits; `b` is bits after a capital prefix (`200Gb/s`,
  `200Gbps`) and refused otherwise. The `/s` may be left out (`200mbit`), as network tools do.
- A time needs its unit, `0` excepted: `ns us µs ms s min`.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from .errors import UsageError

_NUMBER = r"([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(e[+-]?[0-9]{1,3})?"
_QUANTITY = re.compile(rf"\s*{_NUMBER}\s*([A-Za-zµμ/]*)\s*", re.IGNORECASE)
_LIMIT = Fraction(1 << 63)

_PREFIXES = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4, "p": 1000**5}
_PREFIXES |= {f"{p}i": 1 << (10 * i) for i, p in enumerate("kmgtp", start=1)}
_SCALE = re.compile(r"((?:[kmgtp]i?)?)(bytes?|bits?|b)?", re.IGNORECASE)
_SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
}

_SIZE_EXAMPLE = "write for example 64MiB, 100MB or 512"
_TIME_EXAMPLE = "write for example 3us, 200ms or 1.5s"
_BANDWIDTH_EXAMPLE = "write for example 450GiB/s, 25GB/s or 200Gbit/s"


def parse_size(text: str) -> int:
    """Bytes from a size such as `64MiB`, `100MB`, `1e6` or `512`.

    Raises:
        UsageError: not a size, not a whole number of bytes (`0.1MiB`), or 2^63 bytes and more.

    >>> parse_size("64MiB"), parse_size("1.5 kB"), parse_size("512")
    (67108864, 1500, 512)
    """
    number, unit = _split(text, "a size", _SIZE_EXAMPLE)
    scale = _SCALE.fullmatch(unit)
    if scale is None:
        raise UsageError(f"{text!a} is not a size: {_SIZE_EXAMPLE}")
    prefix, word = scale[1], scale[2] or ""
    if prefix and not word and not prefix.lower().endswith("i"):
        raise UsageError(f"{text!a}: {prefix}B or {prefix}iB? {_SIZE_EXAMPLE}")
    if word == "b" or word.lower().startswith("bit"):
        raise UsageError(f"{text!a}: a size is in bytes, with a capital B: {_SIZE_EXAMPLE}")
    size = number * _PREFIXES[prefix.lower()]
    if size.denominator != 1:
        raise UsageError(f"{text!a} is not a whole number of bytes: {_SIZE_EXAMPLE}")
    return int(_bounded(size, text, _SIZE_EXAMPLE))


def parse_seconds(text: str) -> float:
    """Seconds from a time such as `3us`, `200 ms`, `1.5s` or `0`.

    Raises:
        UsageError: not a time, or one without a unit.

    >>> parse_seconds("200ms"), parse_seconds("0")
    (0.2, 0.0)
    """
    number, unit = _split(text, "a time", _TIME_EXAMPLE)
    if not unit and not number:
        return 0.0
    if unit not in _SECONDS:
        problem = "has no unit" if not unit else "is not a time"
        raise UsageError(f"{text!a} {problem}: {_TIME_EXAMPLE}")
    return float(_bounded(number * _SECONDS[unit], text, _TIME_EXAMPLE))


def parse_bandwidth(text: str) -> float:
    """Bytes a second from a bandwidth such as `450GiB/s`, `25GB/s`, `200Gbit/s` or `200mbit`.

    Raises:
        UsageError: not a bandwidth, one without a unit, or one that may be bits or bytes (`25gb/s`).

    >>> parse_bandwidth("25GB/s") == parse_bandwidth("200Gbit/s") == 25e9
    True
    """
    number, unit = _split(text, "a bandwidth", _BANDWIDTH_EXAMPLE)
    scale = _SCALE.fullmatch(re.sub(r"(/s|ps)\Z", "", unit))
    if scale is None or not scale[2]:
        problem = "has no unit" if scale else "is not a bandwidth"
        raise UsageError(f"{text!a} {problem}: {_BANDWIDTH_EXAMPLE}")
    prefix, word = scale[1], scale[2]
    if word == "b" and not prefix[:1].isupper():
        raise UsageError(f"{text!a}: bits or bytes? {_BANDWIDTH_EXAMPLE}")
    bits = word == "b" or word.lower().startswith("bit")
    rate = number * _PREFIXES[prefix.lower()] / (8 if bits else 1)
    return float(_bounded(rate, text, _BANDWIDTH_EXAMPLE))


def format_bytes(count: float) -> str:
    """A size for people: exact where four digits can say it, in 1024s unless only 1000s are exact.

    >>> format_bytes(64 * 2**20), format_bytes(10**8), format_bytes(123456789)
    ('64MiB', '100MB', '117.7MiB')
    """
    binary, decimal = _scaled(count, 1024, "iB"), _scaled(count, 1000, "B")
    return decimal if _exact(decimal, count) and not _exact(binary, count) else binary


def format_bandwidth(rate: float) -> str:
    """A bandwidth for people, in bytes a second.

    >>> format_bandwidth(450 * 2**30), format_bandwidth(25e9)
    ('450GiB/s', '25GB/s')
    """
    return f"{format_bytes(rate)}/s"


def format_seconds(seconds: float) -> str:
    """A time for people, with four digits.

    >>> format_seconds(3e-6), format_seconds(0.2), format_seconds(0), format_seconds(75)
    ('3us', '200ms', '0s', '75s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale * 0.99995 or not seconds or not math.isfinite(seconds):
            return f"{_digits(seconds / scale)}{unit}"
    return f"{_digits(seconds / 1e-9)}ns"


def _split(text: str, kind: str, example: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text) if len(text) <= 80 else None
    if match is None:
        raise UsageError(f"{text[:80]!a} is not {kind}: {example}")
    digits, exponent, unit = match.groups(default="")
    return Fraction(digits if digits[-1] != "." else digits[:-1]) * Fraction(f"1{exponent}"), unit


def _bounded(value: Fraction, text: str, example: str) -> Fraction:
    if value >= _LIMIT:
        raise UsageError(f"{text!a} is too large: {example}")
    if value and not float(value):
        raise UsageError(f"{text!a} is too small: {example}")
    return value


def _scaled(count: float, base: int, suffix: str) -> str:
    # 0.99995: what four digits would round up to the next unit is shown in that unit.
    power = 0
    while power < 5 and abs(count) >= base ** (power + 1) * 0.99995:
        power += 1
    prefix = ("", "K" if base == 1024 else "k", "M", "G", "T", "P")[power]
    return f"{_digits(count / base**power)}{prefix}{suffix if power else 'B'}"


def _digits(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:.0f}"


def _exact(text: str, count: float) -> bool:
    number, unit = (
        _split(text, "a size", _SIZE_EXAMPLE) if math.isfinite(count) and count >= 0 else (None, "")
    )
    return number is not None and number * _PREFIXES[unit[:-1].lower()] == count
