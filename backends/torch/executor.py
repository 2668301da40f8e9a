"""Runs one rank's rounds over torch.distributed point-to-point, in place, with no barrier between rounds.

A round's messages are posted together (one batch where the backend has batches, as NCCL), and their handles
are kept until each has been waited for: a dropped gloo handle breaks the group. All data travels as bytes, so
every element type works.

No deadlock: of all unfinished rounds on all ranks take the first. Its messages are posted on both ends, or
will be, as neither end waits for anything but earlier rounds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .blame import Blame
from .reductions import combine
from .rounds import Message, Round

TAG = 0x5A
_ALIGNED = 64


class Executor:
    """One rank's end of a process group on which nothing else is sent with tag `TAG`.

    Args:
        group: the process group; ranks are those of this group.
        blame: how to name the rank that does not answer.
        timeout: seconds that one message may take.
    """

    def __init__(self, group: dist.ProcessGroup, blame: Blame, timeout: float) -> None:
        self._group, self._rank, self._blame = group, group.rank(), blame
        self._timeout = timedelta(seconds=timeout)
        self._scratch: dict[torch.device, torch.Tensor] = {}
        self._batches: dict[torch.device, bool] = {}

    def run(self, flat: torch.Tensor, rounds: tuple[Round, ...], op: str) -> None:
        """Reduces `flat`, shape (count,), contiguous, over all ranks, in place.

        Raises:
            RunError: a rank does not answer; names it. The group is then unusable.
        """
        raw, size = flat.view(torch.uint8), flat.element_size()
        for number in rounds:
            landing = self._landing(raw, number, size)
            self._exchange(raw, number, landing, size)
            for message, incoming in zip(number.receives, landing, strict=True):
                if message.direct:
                    continue
                own = flat[message.low : message.high]
                if message.copy:
                    own.copy_(incoming.view(flat.dtype))
                else:
                    combine(op, own, incoming.view(flat.dtype), self._rank < message.peer)

    def _landing(self, raw: torch.Tensor, number: Round, size: int) -> list[torch.Tensor]:
        """Where each received message lands: in place, or in scratch memory that is used again each round."""
        places, at = [], 0
        wanted = sum(_padded(m, size) for m in number.receives if not m.direct)
        scratch = self._scratch_of(raw.device, wanted)
        for message in number.receives:
            if message.direct:
                places.append(raw[message.low * size : message.high * size])
                continue
            places.append(scratch[at : at + (message.high - message.low) * size])
            at += _padded(message, size)
        return places

    def _scratch_of(self, device: torch.device, wanted: int) -> torch.Tensor:
        held = self._scratch.get(device)
        if held is None or held.numel() < wanted:
            held = self._scratch[device] = torch.empty(wanted, dtype=torch.uint8, device=device)
        return held

    def _exchange(self, raw: torch.Tensor, number: Round, landing: list[torch.Tensor], size: int) -> None:
        batch = self._in_batches(raw.device)
        handles: list[tuple[int, Any]] = []
        peer = (number.receives or number.sends)[0].peer
        try:
            if batch:
                self._group._start_coalescing(raw.device)
            for message, place in zip(number.receives, landing, strict=True):
                peer = message.peer
                handles.append((peer, self._group.recv([place], peer, TAG)))
            for message in number.sends:
                peer, part = message.peer, raw[message.low * size : message.high * size]
                handles.append((peer, self._group.send([part], peer, TAG)))
            if batch:
                handles = [(peer, self._group._end_coalescing(raw.device))]
            for peer, work in handles:  # noqa: B007
                work.wait(self._timeout)
        except RuntimeError as error:
            raise self._blame.peer(peer, number.where, error) from error

    def _in_batches(self, device: torch.device) -> bool:
        if device not in self._batches:
            backend = self._group._get_backend(device)
            self._batches[device] = bool(backend.supports_coalescing) and device.type != "cpu"
            if self._batches[device]:
                # NCCL connects all ranks in the first operation: it must not be one of a few ranks.
                self._group.allreduce([torch.zeros(1, device=device)]).wait()
        return self._batches[device]


def _padded(message: Message, size: int) -> int:
    return -(-(message.high - message.low) * size // _ALIGNED) * _ALIGNED
