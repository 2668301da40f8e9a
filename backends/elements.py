"""What a buffer is made of: element types, reductions, chunk bounds, test data and the check of a result.

Test data is made so that the check means something. Elements with an even index hold values so coarse
that every order of reducing them is exact: there one bit of difference is an error. Elements with an odd
index use the whole mantissa: there a result may differ from the reference by the rounding of n - 1
operations and no more. Data repeats after `PERIOD` elements (a prime, so that no chunk lines up with it),
which keeps making and checking it cheap for large buffers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..schedules import MissingError, UsageError

Array = NDArray[Any]

PERIOD = (1 << 20) - 3

DTYPES = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "bf16": "bfloat16",
    "i32": "int32",
    "i64": "int64",
}
"""Name of an element type -> its numpy name, which is accepted too."""

OPS: dict[str, np.ufunc] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
    "avg": np.add,
}
"""Name of a reduction -> numpy's function that joins two operands; `avg` needs `prepare` and `finish` too."""

_ALIASES = {numpy_name: name for name, numpy_name in DTYPES.items()} | {
    "half": "f16",
    "float": "f32",
    "double": "f64",
}
_MANTISSA = {"f16": 11, "f32": 24, "f64": 53, "bf16": 8}
_EXPONENT = {"f16": 14, "f32": 126, "f64": 1022, "bf16": 126}
_INTEGER_SUM, _INTEGER_BITS = 100, {"i32": 31, "i64": 63}


def dtype_name(name: str) -> str:
    """The short name of an element type, from that or an alias (`float32` -> `f32`).

    Raises:
        UsageError: no such type.
    """
    short = _ALIASES.get(name.lower(), name.lower())
    if short not in DTYPES:
        raise UsageError(f"element type {name!r} is not known: use one of {', '.join(DTYPES)}")
    return short


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy type of an element type.

    Raises:
        UsageError: no such type.
        MissingError: bf16 without the package that gives numpy this type.
    """
    short = dtype_name(name)
    if short != "bf16":
        return np.dtype(DTYPES[short])
    try:
        import ml_dtypes
    except ImportError as error:
        raise MissingError("bf16 needs the package ml_dtypes: pip install 'stragglar[mpi]'") from error
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def reduction(op: str) -> np.ufunc:
    """The numpy function of a reduction.

    Raises:
        UsageError: no such reduction.
    """
    if op not in OPS:
        raise UsageError(f"reduction {op!r} is not known: use one of {', '.join(OPS)}")
    return OPS[op]


def chunk_bounds(count: int, chunks: int) -> NDArray[np.int64]:
    """Where the chunks of a buffer of `count` elements begin and end.

    Returns:
        int64, shape (chunks + 1,): chunk c is elements bounds[c] to bounds[c + 1] - 1, sizes differ by at
        most one, and some are empty where count < chunks.
    """
    whole, rest = divmod(count, chunks)
    at = np.arange(chunks + 1, dtype=np.int64)
    return at * whole + at * rest // chunks


def combine(op: str, own: Array, incoming: Array, own_first: bool, out: Array) -> None:
    """Reduces `incoming` with `own` into `out`, the lower rank's operand first.

    The order makes the two ends of a swap agree bit for bit even where an operation is not commutative
    in every bit: max of +0 and -0, or two NaNs.
    """
    first, second = (own, incoming) if own_first else (incoming, own)
    OPS[op](first, second, out=out)


def prepare(op: str, data: Array, ranks: int) -> None:
    """What `avg` does before the sum, in place: floats are divided by the number of ranks.

    As NCCL and DDP do, so that the sum of halves does not overflow. Nothing for other reductions.
    """
    if op == "avg" and data.dtype.kind != "i":
        # In f32, as kernels do: 16-bit types do not hold every number of ranks.
        wide = data.astype(np.promote_types(data.dtype, np.float32), copy=False)
        data[...] = (wide / wide.dtype.type(ranks)).astype(data.dtype, copy=False)


def finish(op: str, data: Array, ranks: int) -> None:
    """What `avg` does after the sum, in place: whole numbers are divided, towards zero."""
    if op == "avg" and data.dtype.kind == "i":
        divisor = data.dtype.type(ranks)
        np.floor_divide(data - np.fmod(data, divisor), divisor, out=data)


def rank_input(rank: int, ranks: int, count: int, dtype: str, op: str, seed: int = 0) -> Array:
    """The test data of one rank: shape (count,), the same wherever and whenever it is made."""
    return np.resize(_period(rank, ranks, min(count, PERIOD), dtype_name(dtype), op, seed), count)


def _period(rank: int, ranks: int, count: int, name: str, op: str, seed: int) -> Array:
    kind = numpy_dtype(name)
    rng = np.random.default_rng([seed, rank])
    if name in _INTEGER_BITS:
        return _integers(rng, rank, ranks, count, name, op).astype(kind)
    data = _rounding(rng, ranks, count, op)
    data[::2] = _coarse(rng, rank, ranks, (count + 1) // 2, name, op)
    return data.astype(kind)


def _integers(rng: np.random.Generator, rank: int, ranks: int, count: int, name: str, op: str) -> Array:
    if op != "prod":
        return rng.integers(-_INTEGER_SUM, _INTEGER_SUM, count, endpoint=True)
    factors = int(_INTEGER_BITS[name] / math.log2(3))
    values = rng.integers(2, 3, count, endpoint=True) * rng.choice([-1, 1], count)
    return np.where(_chosen(rank, ranks, count, factors), values, 1)


def _chosen(rank: int, ranks: int, count: int, limit: int) -> NDArray[np.bool_]:
    """For each element whether this rank has a part in it: `limit` ranks at most, in turn."""
    return (rank + np.arange(count)) % ranks < limit


def _rounding(rng: np.random.Generator, ranks: int, count: int, op: str) -> NDArray[np.float64]:
    if op == "prod":
        return 1 + rng.uniform(-1, 1, count) / max(ranks, 2)
    return rng.uniform(-1, 1, count)


def _coarse(
    rng: np.random.Generator, rank: int, ranks: int, count: int, name: str, op: str
) -> NDArray[np.float64]:
    """Values whose reductions are exact in any order."""
    if op == "prod":
        power = rng.choice([0.5, 2.0], count)
        return np.where(_chosen(rank, ranks, count, _EXPONENT[name]), power, 1.0)
    # Of an average, the reference adds multiples of n in f64.
    room = min(2 ** _MANTISSA[name], 2**53 // ranks if op == "avg" else 2**53)
    largest = max(1, room // ranks)
    values = rng.integers(-largest, largest, count, endpoint=True)
    whole = np.where(_chosen(rank, ranks, count, room), values, 0).astype(np.float64)
    if op != "avg":
        return whole
    # Divided before it is summed: a multiple of n stays whole, where the type has that multiple.
    multiples = whole * ranks
    return np.where(multiples.astype(numpy_dtype(name)).astype(np.float64) == multiples, multiples, 0)


@dataclass(frozen=True, slots=True)
class Expected:
    """The right result, and how far rounding may take a computed one from it.

    Attributes:
        values: int64 or float64, shape (p,): element j of a result should be values[j mod p].
        bound: float64, shape (p,): largest |result - values| that rounding explains, or None: exact.
        dtype: numpy type of the results.
    """

    values: Array
    bound: NDArray[np.float64] | None
    dtype: np.dtype[Any]

    def wrong(self, result: Array) -> int:
        """How many elements of a result, shape (count,), are wrong (nccl-tests' #wrong)."""
        period = len(self.values)
        return sum(self._wrong(result[low : low + period]) for low in range(0, len(result), period))

    def _wrong(self, part: Array) -> int:
        values = self.values[: len(part)]
        if self.bound is None:
            # `not equal` counts a NaN as wrong.
            return int(np.count_nonzero(~(part.astype(values.dtype) == values)))
        with np.errstate(invalid="ignore", over="ignore"):
            return int(
                np.count_nonzero(~(np.abs(part.astype(np.float64) - values) <= self.bound[: len(part)]))
            )


def mismatches(result: Array, expected: Expected) -> int:
    """Number of wrong elements of one rank's result; see `Expected`."""
    return expected.wrong(result)


def expected_of(inputs: Iterable[Array], op: str) -> Expected:
    """What an AllReduce of these inputs (one array a rank, equal shapes and types) must give.

    The bound: n - 1 roundings, each of relative size u (half the distance of 1 to the next number), in
    any order, give at most g sum|x| for a sum and g |product| for a product, g = (1 + u)^(n-1) - 1
    (Higham, Accuracy and Stability, ch. 3 and 4); the same again, in float64, for the reference itself.
    An average has one rounding more, the division before the sum, which may also underflow.
    """
    total, magnitude, ranks = None, None, 0
    function, adds = reduction(op), op in ("sum", "avg")
    for data in inputs:
        ranks += 1
        wide = data.astype(np.int64 if data.dtype.kind == "i" else np.float64)
        total = wide if total is None else function(total, wide)
        size = np.abs(wide) if adds else np.abs(total)
        magnitude = size if magnitude is None or not adds else magnitude + size
        kind = data.dtype
    if total is None or magnitude is None:
        raise UsageError("no inputs: nothing to expect")
    if kind.kind == "i":
        total = total.astype(kind)  # wraps as the type does
        finish(op, total, ranks)
        return Expected(total.astype(np.int64), None, kind)
    if op in ("max", "min"):
        return Expected(total, None, kind)
    if op == "avg":
        bound = _rounded(ranks + 1, kind) * magnitude / ranks + ranks * _half_smallest(kind)
        return Expected(total / ranks, bound, kind)
    return Expected(total, _rounded(ranks, kind) * magnitude, kind)


def _rounded(ranks: int, kind: np.dtype[Any]) -> float:
    return _gamma(ranks, kind) + _gamma(ranks, np.dtype(np.float64))


def _half_smallest(kind: np.dtype[Any]) -> float:
    """Half the distance of subnormal numbers: what a division that underflows may be off."""
    name = _ALIASES[kind.name]
    return math.ldexp(1.0, max(-_EXPONENT[name] - _MANTISSA[name], -1074))


def _gamma(ranks: int, kind: np.dtype[Any]) -> float:
    name = _ALIASES[kind.name]
    return math.expm1((ranks - 1) * math.log1p(2.0 ** -_MANTISSA[name]))


def expected(ranks: int, count: int, dtype: str, op: str, seed: int = 0) -> Expected:
    """The right result for the data of `rank_input`; what is exact there is demanded exactly."""
    name, count = dtype_name(dtype), min(count, PERIOD)
    right = expected_of((_period(rank, ranks, count, name, op, seed) for rank in range(ranks)), op)
    if right.bound is not None:
        right.bound[::2] = 0
    return right
