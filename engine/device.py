"""Device: the little of an accelerator that the engine's logic needs, behind one narrow protocol.

    worker's thread   compute stream   copy in -> kernels, or a graph of them -> logits
    mover's thread    copy stream      K/V between the pool and pinned host memory

Whoever queues work on a stream does not wait for it. An event marks a point of a stream: a stream can
be told to wait for it, or the host can. A buffer that a copy reads from or writes to is nobody's until
an event behind that copy has passed.

`CudaDevice` is the real one. Tests have one that computes on the CPU at once, keeps an account of what
is under way, and refuses what would be a race.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
import torch

from agentkv.engine.errors import InvalidRequest

LARGE = 16 << 20
"""Bytes of pinned memory from which they are taken one by one."""

Zeros = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]
"""`zeros(shape, dtype)`: where memory comes from."""


class Event(Protocol):
    """A point of a stream."""

    def synchronize(self) -> None:
        """Wait, on the host, until everything queued before it is done."""
        ...


class Graph(Protocol):
    """Recorded work."""

    def replay(self) -> None:
        """Queue all of it on the current stream."""
        ...

    def release(self) -> None:
        """Give it up. Work that is under way still ends."""
        ...


class Device(Protocol):
    """Streams, events, graphs and pinned memory of one accelerator."""

    where: torch.device

    def adopt(self) -> None:
        """From now on the calling thread queues on the compute stream."""
        ...

    def copying(self) -> AbstractContextManager[object]:
        """Inside, the calling thread queues on the copy stream."""
        ...

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Zeros on the host that the device can read and write by itself."""
        ...

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Queue a copy between pinned memory and the device; both contiguous, of one size."""
        ...

    def record(self) -> Event:
        """The point that the current stream has come to."""
        ...

    def wait(self, event: Event) -> None:
        """The current stream goes on once the event has passed."""
        ...

    def capture(self, work: Callable[[], None]) -> Graph:
        """Record the kernels that `work` queues, running none of them. `work` must have run before,
        and may neither wait for the device nor copy from the host."""
        ...

    def graph_bytes(self) -> int:
        """Bytes that graphs hold. They share their memory, so it comes back when all of them are
        given up, and not before."""
        ...

    def memory(self) -> tuple[int, int]:
        """Bytes free and in all."""
        ...


def find_device(name: str) -> Device | None:
    """The device that a setting names (`auto`, `cpu`, `cuda`, `cuda:N`); None for the CPU.

    `auto` is the first CUDA device where torch sees one. Raises `InvalidRequest` when a CUDA device is
    asked for and there is none, or no such one.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return None
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        why = (
            "torch sees no GPU (is the driver loaded, and CUDA_VISIBLE_DEVICES right?)"
            if built
            else f"torch {torch.__version__} is a build for CPUs: install one for CUDA"
        )
        raise InvalidRequest(
            f"device={name!r} asks for CUDA, and {why}. device='cpu' runs without.", param="device"
        )
    index = int(name.split(":")[1]) if ":" in name else 0
    count = torch.cuda.device_count()
    if index >= count:
        raise InvalidRequest(
            f"device={name!r} asks for GPU {index}, and there are {count}, counted from 0.",
            param="device",
        )
    return CudaDevice(index)


class CudaGraph:
    """`Graph` by CUDA."""

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self._graph = graph

    def replay(self) -> None:
        self._graph.replay()

    def release(self) -> None:
        self._graph.reset()


class CudaDevice:
    """`Device` for one GPU of torch (CUDA, or ROCm by the same calls)."""

    def __init__(self, index: int) -> None:
        self.where = torch.device("cuda", index)
        with torch.cuda.device(self.where):
            self._compute = torch.cuda.Stream()
            self._copies = torch.cuda.Stream()
            # All graphs share one pool of memory: only one runs at a time, and none leaves anything
            # behind there.
            self._graphs = torch.cuda.graph_pool_handle()

    def adopt(self) -> None:
        torch.cuda.set_device(self.where)
        torch.cuda.set_stream(self._compute)

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        with torch.cuda.device(self.where), torch.cuda.stream(self._copies):
            yield

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        # As bytes: not every dtype can be filled.
        size = math.prod(shape) * dtype.itemsize
        if size < LARGE:
            raw = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
        else:
            raw = self._registered(size)
        return raw.view(dtype).view(shape)

    def _registered(self, size: int) -> torch.Tensor:
        """torch's own pinned memory comes in powers of two, which a host tier cannot afford."""
        memory = np.zeros(size, dtype=np.uint8)
        where, library = memory.ctypes.data, torch.cuda.cudart()
        with torch.cuda.device(self.where):
            torch.cuda.check_error(library.cudaHostRegister(where, size, 0))
        weakref.finalize(memory, library.cudaHostUnregister, where)
        return torch.from_numpy(memory)

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def record(self) -> Event:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.where))
        return event

    def wait(self, event: Event) -> None:
        assert isinstance(event, torch.cuda.Event)
        torch.cuda.current_stream(self.where).wait_event(event)

    def capture(self, work: Callable[[], None]) -> Graph:
        graph = torch.cuda.CUDAGraph()
        # Other threads may copy meanwhile: only what this thread does is held to the rules.
        with torch.cuda.graph(graph, pool=self._graphs, capture_error_mode="thread_local"):
            work()
        return CudaGraph(graph)

    def graph_bytes(self) -> int:
        pool = tuple(self._graphs)
        segments = torch.cuda.memory_snapshot()
        return sum(s["total_size"] for s in segments if tuple(s["segment_pool_id"]) == pool)

    def memory(self) -> tuple[int, int]:
        free, total = torch.cuda.mem_get_info(self.where)
        # What torch holds and does not use is free, too.
        idle = torch.cuda.memory_reserved(self.where) - torch.cuda.memory_allocated(self.where)
        return free + idle, total
