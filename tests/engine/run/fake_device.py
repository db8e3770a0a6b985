"""A device that is none: everything is computed on the CPU, at once, and what would be a race is refused.

- A copy to the device reads its source until an event behind it has been waited for: who writes there
  earlier is found out.
- A copy to the host arrives when such an event is waited for, and not before: who reads earlier finds
  poison.
- On the copy stream nothing may be copied before the stream waits for something that was computed.
- While a graph is recorded, nothing may be copied, waited for or pinned. One that was released cannot be
  replayed. What graphs hold comes back when all of them are released.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from agentkv.engine.device import Device, Event, Graph

POISON = 0x5A


class Race(AssertionError):
    """Something that would go wrong on a real device, now and then."""


@dataclass
class Copy:
    """Under way on a stream since its moment `at`."""

    stream: str
    at: int
    source: torch.Tensor
    target: torch.Tensor
    content: torch.Tensor
    home: bool  # to the host


@dataclass
class FakeEvent:
    device: FakeDevice
    stream: str
    at: int

    def synchronize(self) -> None:
        self.device.passed(self)


@dataclass
class FakeGraph:
    device: FakeDevice
    work: Callable[[], None]
    released: bool = False
    replays: int = 0

    def replay(self) -> None:
        if self.released:
            raise Race("a graph that was released is replayed")
        self.replays += 1
        with self.device.recording():
            self.work()

    def release(self) -> None:
        self.released = True
        if all(graph.released for graph in self.device.graphs):
            self.device.graphs_hold = 0


def raw(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.uint8) if x.dtype == torch.float8_e4m3fn else x


@dataclass
class FakeDevice:
    """`Device` on CPU tensors. `free`, `total`: what it says of its memory; a graph takes `graph_size`."""

    free: int = 8 << 30
    total: int = 10 << 30
    graph_size: int = 1 << 20
    graphs_hold: int = 0
    where: torch.device = field(default_factory=lambda: torch.device("cpu"))
    log: list[str] = field(default_factory=list)
    graphs: list[FakeGraph] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    refuse_graphs: bool = False

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._here = threading.local()
        self._moment = 0
        self._pins: list[torch.Tensor] = []
        self._under_way: list[Copy] = []
        self._recording = 0

    # -- Device

    def adopt(self) -> None:
        self.adopted.append(threading.current_thread().name)

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        self._here.stream, self._here.waited = "copies", False
        try:
            yield
        finally:
            self._here.stream = "compute"

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        self._must_not_record("pin memory")
        with torch.inference_mode(False):  # copies arrive wherever somebody waits for them
            raw_type = torch.uint8 if dtype.itemsize == 1 else dtype
            made = torch.zeros(shape, dtype=raw_type).view(dtype)
        self._pins.append(made)
        return made

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self._must_not_record("copy")
        assert source.is_contiguous() and target.is_contiguous()
        assert source.shape == target.shape and source.dtype == target.dtype
        down, up = self._is_pinned(target), self._is_pinned(source)
        if down == up:
            raise Race("a copy that is not waited for needs pinned memory at one end")
        if self._stream == "copies" and not self._here.waited:
            raise Race("the copy stream has waited for nothing that was computed")
        with self._lock:
            self._moment += 1
            self.log.append(f"{self._stream}: {'down' if down else 'up'}")
            self._check()
            content = raw(source).clone()
            self._under_way.append(
                Copy(self._stream, self._moment, source, target, content, home=down)
            )
            if down:
                target.view(torch.uint8).fill_(POISON)
            else:
                raw(target).copy_(content)

    def record(self) -> Event:
        self._must_not_record("record an event")
        with self._lock:
            self._moment += 1
            self.log.append(f"{self._stream}: event")
            return FakeEvent(self, self._stream, self._moment)

    def wait(self, event: Event) -> None:
        self._must_not_record("wait")
        assert isinstance(event, FakeEvent)
        if event.stream == "compute":
            self._here.waited = True
        self.log.append(f"{self._stream}: waits for {event.stream}")

    def capture(self, work: Callable[[], None]) -> Graph:
        if self.refuse_graphs:
            raise RuntimeError("operation not permitted when stream is capturing")
        with self.recording():
            work()  # a real one would compute nothing, and everything here it may compute twice
        self.graphs.append(FakeGraph(self, work))
        self.graphs_hold += self.graph_size
        self.log.append("capture")
        return self.graphs[-1]

    def graph_bytes(self) -> int:
        return self.graphs_hold

    def memory(self) -> tuple[int, int]:
        return self.free, self.total

    # -- for tests

    @property
    def _stream(self) -> str:
        return getattr(self._here, "stream", "compute")

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        self._here.recording = True
        try:
            yield
        finally:
            self._here.recording = False

    def passed(self, event: FakeEvent) -> None:
        """The host has waited for it: all copies before it on its stream have arrived."""
        self._must_not_record("wait on the host")
        with self._lock:
            self.log.append(f"host waits for {event.stream}")
            self._check()
            done = [c for c in self._under_way if c.stream == event.stream and c.at < event.at]
            for copy in done:
                self._under_way.remove(copy)
                if copy.home:
                    raw(copy.target).copy_(copy.content)

    def check(self) -> None:
        """Raises `Race` when memory was touched that a copy was still using."""
        with self._lock:
            self._check()

    def _check(self) -> None:
        for copy in self._under_way:
            if copy.home:
                if not bool((copy.target.view(torch.uint8) == POISON).all()):
                    raise Race("pinned memory was written while a copy to it was under way")
            elif not torch.equal(raw(copy.source), copy.content):
                raise Race("pinned memory was written while a copy from it was under way")

    def _is_pinned(self, x: torch.Tensor) -> bool:
        return any(
            x.untyped_storage().data_ptr() == p.untyped_storage().data_ptr() for p in self._pins
        )

    def _must_not_record(self, what: str) -> None:
        if getattr(self._here, "recording", False):
            raise Race(f"to {what} cannot be recorded in a graph")


def _is_a_device(device: FakeDevice) -> Device:
    return device  # for the type checker
