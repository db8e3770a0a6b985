"""Staging: a step's tables go to the device in one copy, from pinned memory.

The copy is queued and not waited for, so a buffer on the host may not be written again before the
event behind its copy has passed. There are two of them: the next step's tables can be written while
this step's are still on their way.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentkv.engine.attention.packing import pack, places, unpack
from agentkv.engine.device import Device, Event
from agentkv.engine.types import IntArray

BUFFERS = 2
LEAST = 1 << 14
"""Numbers in the first buffers; they grow by doubling."""


class Staging:
    """Not thread-safe: the thread that computes has it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._host: list[torch.Tensor | None] = [None] * BUFFERS
        self._sent: list[Event | None] = [None] * BUFFERS
        self._next = 0
        self._room = torch.empty(0, dtype=torch.int32, device=device.where)

    def send(
        self, tables: Sequence[IntArray], target: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """int32 tables on the device, in the order of the compute stream, valid until the next call.

        `target`: where to put them, one behind the other (see `packing.places`), int32, large enough;
        None for memory of this object.
        """
        lengths = [len(t) for t in tables]
        size = places(lengths)[1]
        at = self._next
        self._next = (at + 1) % BUFFERS
        sent = self._sent[at]
        if sent is not None:
            sent.synchronize()
        buffer = self._host[at]
        if buffer is None or buffer.shape[0] < size:
            grown = max(LEAST, 1 << (size - 1).bit_length())
            buffer = self._host[at] = self._device.pinned((grown,), torch.int32)
        pack(tables, buffer.numpy())
        if target is None:
            if self._room.shape[0] < size:
                self._room = torch.empty(buffer.shape, dtype=torch.int32, device=self._device.where)
            target = self._room
        self._device.copy(buffer[:size], target[:size])
        self._sent[at] = self._device.record()
        return unpack(target, lengths)
