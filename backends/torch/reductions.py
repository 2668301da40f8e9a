"""How two tensors become one: the operations of torch's all_reduce on the element types that it has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from ...schedules import UsageError

_JOIN: dict[str, Callable[..., Any]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


_NATIVE = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int32, torch.int64),
}


def native(name: str, flat: torch.Tensor) -> bool:
    """Whether the all_reduce of the backend (gloo on CPUs, NCCL on GPUs) can do this at all."""
    bitwise = name in ("BAND", "BOR", "BXOR")
    return flat.dtype in _NATIVE and (flat.device.type == "cpu" or not bitwise)


def op_name(op: object) -> str:
    """The name of a `dist.ReduceOp`, or of one given by name.

    Raises:
        UsageError: an operation that all_reduce has and schedules have not (PREMUL_SUM).
    """
    for name in _JOIN:
        if op == name or op == getattr(dist.ReduceOp, name):
            return name
    raise UsageError(f"reduction {op} is not known: use one of {', '.join(_JOIN)}")


@cache
def require_supported(name: str, dtype: torch.dtype) -> None:
    """Raises `UsageError` where torch cannot do this operation on this type: before any message is sent."""
    try:
        if name == "AVG" and dtype == torch.bool:
            raise TypeError("truth values have no mean")
        one = torch.zeros(1, dtype=dtype)
        _JOIN[name](one, one, out=one)
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"{name} of {dtype} is not possible: {str(error).splitlines()[0]}") from error


def combine(name: str, own: torch.Tensor, incoming: torch.Tensor, own_first: bool) -> None:
    """Reduces `incoming` into `own`, the lower rank's operand first.

    The order makes the two ends of a swap agree bit for bit where an operation does not commute in
    every bit: two NaNs, or the maximum of +0 and -0.
    """
    first, second = (own, incoming) if own_first else (incoming, own)
    _JOIN[name](first, second, out=own)


def prepare(name: str, flat: torch.Tensor, ranks: int) -> None:
    """What AVG does before the sum: divide floats, as DDP and NCCL do, so that the sum does not overflow."""
    if name == "AVG" and flat.dtype.is_floating_point:
        flat.div_(ranks)


def finish(name: str, flat: torch.Tensor, ranks: int) -> None:
    """What AVG does after the sum: whole numbers are divided then, towards zero."""
    if name == "AVG" and not flat.dtype.is_floating_point:
        flat.div_(ranks, rounding_mode="trunc")


def as_real(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """A complex tensor as its real and imaginary parts, where they can be reduced apart.

    Raises:
        UsageError: an operation that complex numbers do not have.
    """
    if not tensor.is_complex():
        return tensor
    if name not in ("SUM", "AVG"):
        raise UsageError(f"{name} of complex numbers is not possible: SUM and AVG are")
    return torch.view_as_real(tensor)
