"""MPI's own Allreduce, to compare with, for every element type: also those that MPI does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..elements import OPS, Array, finish, prepare

if TYPE_CHECKING:
    from mpi4py import MPI

_TYPES = {"f32": "FLOAT", "f64": "DOUBLE", "i32": "INT32_T", "i64": "INT64_T"}
"""Element types that MPI knows -> its name for them."""

_NAMES = {"avg": "SUM"}
"""Reductions that MPI calls something else; an average is a sum that is divided, see `elements.prepare`."""


class NativeAllreduce:
    """An in-place Allreduce of MPI's own for one element type; f16 and bf16 are reduced by numpy in it."""

    def __init__(self, comm: MPI.Intracomm, dtype: str, op: str) -> None:
        from mpi4py import MPI

        self._comm, self._name = comm, op
        self._own = dtype not in _TYPES
        self.note = "f16 and bf16: MPI has no such type, so numpy does its reductions" if self._own else ""
        if self._own:
            self._type = MPI.BYTE.Create_contiguous(2)
            self._type.Commit()
            self._op = MPI.Op.Create(_numpy_reduction(dtype, op), commute=True)
        else:
            self._type, self._op = getattr(MPI, _TYPES[dtype]), getattr(MPI, _NAMES.get(op, op.upper()))

    def run(self, buffer: Array) -> None:
        """Reduces `buffer`, shape (count,), over all ranks, in place; blocks as MPI does."""
        from mpi4py import MPI

        data = [buffer.view(np.uint8), len(buffer), self._type]
        prepare(self._name, buffer, self._comm.size)
        self._comm.Allreduce(MPI.IN_PLACE, data, op=self._op)
        finish(self._name, buffer, self._comm.size)

    def close(self) -> None:
        """Gives MPI's objects back."""
        if self._own:
            self._type.Free()
            self._op.Free()


def _numpy_reduction(dtype: str, op: str) -> Callable[[Any, Any, MPI.Datatype], None]:
    from ..elements import numpy_dtype

    kind, function = numpy_dtype(dtype), OPS[op]

    def reduce(incoming: Any, result: Any, datatype: MPI.Datatype) -> None:  # noqa: ANN401
        own = np.frombuffer(result, dtype=np.uint8).view(kind)
        with np.errstate(over="ignore", invalid="ignore"):
            function(np.frombuffer(incoming, dtype=np.uint8).view(kind), own, out=own)

    return reduce
