"""Copies of K/V between the device's pool and the host's, and when they may be made.

On one machine's CPU a copy is a copy (`Copies`). With an accelerator (`StreamCopies`) they run on a
stream of their own, beside what is being computed:

    down   compute's event -> [gather on the device -> pinned host] -> event -> rows of the host's pool
    up     compute's event, rows of the host's pool -> pinned -> [device -> scatter]  -> event

`mark` is called on the thread that computes, when a load is asked for: the stream waits for that
event, so that it writes over nothing that is still read or written. What goes down is in the tree, and so
of a step that was committed: `behind` is the end of the last one of these, and the step that runs need not
be waited for.
`down` and `up` return when their last event has passed. Two pinned buffers take turns, and none is
touched before the event behind its last copy. Where rows are one run in the host's pool, which is
pinned itself, there is no buffer in between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from agentkv.engine.device import Device, Event
from agentkv.engine.kv.pool import Index, KVPool
from agentkv.engine.kv.touch import Touched
from agentkv.engine.types import IntArray

BUFFER_BYTES = 8 << 20
"""Of one layer's K and V that are copied at a time, and of each pinned buffer."""


AT_ONCE_BYTES = 256 << 20
"""Some 30 ms, less than a step of a model whose tokens are that large. Queued, it would cost the request
that waits for it the whole of the next step."""


class Copies:
    """Between two pools of one layout, in CPU memory."""

    at_once_bytes = AT_ONCE_BYTES
    """So many come up between two steps, by the thread that computes; 0: where it must not wait."""

    def __init__(self, device: KVPool, host: KVPool) -> None:
        self.device = device
        self.host = host
        self.kv_heads = host.kv_heads
        """Of the whole model."""
        self.touched = Touched(host)
        self.committed: Event | None = None
        """The end of the last step that was committed, told by whoever commits; None where steps are
        done when they return."""

    def mark(self) -> Event | None:
        """A point in what is being computed; None where everything asked for has been done."""
        return None

    def behind(self) -> Event | None:
        """A point behind which all that the tree has was computed."""
        return self.committed or self.mark()

    def down(self, device: IntArray, host: IntArray, after: Event | None = None) -> None:
        """Copy device slots to host slots (int32 `[n]` both), in all layers."""
        copy_slots(self.device, device, self.host, host)

    def up(self, host: IntArray, device: IntArray, after: Event | None = None) -> None:
        """Copy host slots to device slots."""
        copy_slots(self.host, host, self.device, device)

    def gather(self, host: IntArray) -> list[torch.Tensor]:
        """What host slots hold, for each layer `[2, n, kv_heads, head_dim]`."""
        source = index_of(host)
        return [self.host.take(layer, source) for layer in range(self.host.layers)]

    def put(self, layers: list[torch.Tensor], device: IntArray, after: Event | None = None) -> None:
        """Write K/V that is in no pool, for each layer `[2, n, kv_heads, head_dim]`, to device slots."""
        target = index_of(device)
        for layer, rows in enumerate(layers):
            self.device.put(layer, target, rows)


class StreamCopies(Copies):
    """Between a pool on an accelerator and one in host memory. The worker's thread and the mover's may
    use it at once: each call has buffers of its own."""

    at_once_bytes = 0

    def __init__(self, accelerator: Device, device: KVPool, host: KVPool) -> None:
        """The host's pool must be pinned."""
        super().__init__(device, host)
        self._accelerator = accelerator

    def mark(self) -> Event | None:
        return self._accelerator.record()

    def down(self, device: IntArray, host: IntArray, after: Event | None = None) -> None:
        with self._copying(after) as buffers:
            for part, at in self._pieces(device):
                source, target = index_of(part, self.device.device), index_of(host[at])
                for layer in range(self.device.layers):
                    rows = self.device.take(layer, source)
                    if self._direct(target):
                        goal = self.host.layer(layer)[:, target]
                        for side in (0, 1):  # each is one run of bytes
                            self._accelerator.copy(rows[side], goal[side])
                        continue
                    buffer = buffers.take(rows)
                    self._accelerator.copy(rows.contiguous(), buffer)
                    buffers.sent(partial(self.host.put, layer, target, buffer))

    def up(self, host: IntArray, device: IntArray, after: Event | None = None) -> None:
        with self._copying(after) as buffers:
            for part, at in self._pieces(device):
                source, target = index_of(host[at]), index_of(part, self.device.device)
                for layer in range(self.device.layers):
                    rows = self.host.take(layer, source)
                    self._up(layer, rows, target, None if self._direct(source) else buffers)

    def put(self, layers: list[torch.Tensor], device: IntArray, after: Event | None = None) -> None:
        with self._copying(after) as buffers:
            for part, at in self._pieces(device):
                target = index_of(part, self.device.device)
                for layer, rows in enumerate(layers):
                    self._up(layer, rows[:, at], target, buffers)

    def _up(self, layer: int, rows: torch.Tensor, target: Index, buffers: _Buffers | None) -> None:
        """`buffers`: None where the rows are in pinned memory as they are."""
        there = torch.empty(rows.shape, dtype=rows.dtype, device=self.device.device)
        if buffers is None:
            for side in (0, 1):
                self._accelerator.copy(rows[side], there[side])
        else:
            buffer = buffers.take(rows)
            buffer.copy_(rows)
            self._accelerator.copy(buffer, there)
            buffers.sent()
        self.device.put(layer, target, there)

    @contextlib.contextmanager
    def _copying(self, after: Event | None) -> Iterator[_Buffers]:
        """On the copy stream, behind `after`; leaving waits for everything."""
        with self._accelerator.copying():
            if after is not None:
                self._accelerator.wait(after)
            buffers = _Buffers(self._accelerator)
            try:
                yield buffers
            finally:
                buffers.drain()
                self._accelerator.record().synchronize()

    def _direct(self, host: Index) -> bool:
        return isinstance(host, slice) and self.host.dtype == self.device.dtype

    def _pieces(self, slots: IntArray) -> list[tuple[IntArray, slice]]:
        """Device slots in pieces that fit a buffer, and where each stands in the whole."""
        row = self.device.token_bytes // self.device.layers
        step = max(1, BUFFER_BYTES // row)
        return [
            (slots[low : low + step], slice(low, low + step)) for low in range(0, len(slots), step)
        ]


class _Buffers:
    """Two pinned buffers that take turns."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._raw: list[torch.Tensor | None] = [None, None]
        self._sent: list[tuple[Event, Callable[[], None] | None] | None] = [None, None]
        self._at = 0

    def take(self, like: torch.Tensor) -> torch.Tensor:
        """A buffer that nothing is under way in, as large as `like`."""
        self._at ^= 1
        self._finish(self._at)
        raw, size = self._raw[self._at], like.numel() * like.element_size()
        if raw is None or raw.shape[0] < size:
            raw = self._raw[self._at] = self._device.pinned((size,), torch.uint8)
        return raw[:size].view(like.dtype).view(like.shape)

    def sent(self, then: Callable[[], None] | None = None) -> None:
        """A copy of the buffer taken last was queued; `then` is to be done once it has passed."""
        self._sent[self._at] = (self._device.record(), then)

    def drain(self) -> None:
        for at in (self._at ^ 1, self._at):
            self._finish(at)

    def _finish(self, at: int) -> None:
        waiting, self._sent[at] = self._sent[at], None
        if waiting is not None:
            event, then = waiting
            event.synchronize()
            if then is not None:
                then()


def index_of(slots: IntArray, device: torch.device | None = None) -> Index:
    """A slice where the slots are one run (a plain copy then), else their indices."""
    first = int(slots[0])
    if int(slots[-1]) - first == len(slots) - 1 and bool((np.diff(slots) == 1).all()):
        return slice(first, first + len(slots))
    found = torch.from_numpy(slots.astype(np.int64))
    return found if device is None else found.to(device)


def copy_slots(source: KVPool, from_slots: IntArray, target: KVPool, to_slots: IntArray) -> None:
    """Copy K and V of `from_slots` (int32 `[n]`) to `to_slots` in all layers, now, in the target's
    dtype. A pair of pools of which one is FP8 must share their scales."""
    if len(from_slots) == 0:
        return
    origin, goal = index_of(from_slots), index_of(to_slots)
    for layer in range(source.layers):
        target.put(layer, goal, source.take(layer, origin))
