"""Sums and gathers between ranks, over torch.distributed: gloo on CPUs, NCCL on GPUs.

A process group of its own, not torch's default one, which belongs to the program around us: it may have
one, and it may have two engines. The ranks find each other by a file in a private directory, and gloo
listens on loopback only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from agentkv.engine.errors import EngineError, InvalidRequest
from agentkv.engine.model.shard import Shard


class PeerLost(EngineError):
    """An exchange failed, most likely since another rank did: what is behind it is known there."""


class Group:
    """`Collective` of one rank. `connect` before its first exchange.

    `seconds`: how long an exchange may take. It begins when a rank comes to it, and the others may
    have a layer to compute.
    """

    def __init__(self, shard: Shard, device: torch.device, seconds: float) -> None:
        if not torch.distributed.is_available():
            raise InvalidRequest(
                "tensor_parallel needs torch.distributed, and this torch was built without it.",
                param="tensor_parallel",
            )
        self.shard = shard
        self._device = device
        self._limit = timedelta(seconds=seconds)
        self._backend: Any = None
        self._aborted = False

    def connect(self, meeting: Path) -> None:
        """Meet the other ranks at a file that all of them name. Waits for them."""
        from torch.distributed import FileStore  # type: ignore[attr-defined]

        store = FileStore(str(meeting), self.shard.world)
        store.set_timeout(self._limit)
        make = _nccl if self._device.type == "cuda" else _gloo
        try:
            self._backend = make(store, self.shard, self._limit)
        except RuntimeError as error:
            raise PeerLost(f"The ranks did not find each other: {error}") from error

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        self._wait(lambda: self._backend.allreduce([x]))
        return x

    def gather(self, x: torch.Tensor) -> list[torch.Tensor]:
        first = self.shard.rank == 0
        found = [torch.empty_like(x) for _ in range(self.shard.world)] if first else []
        options = torch.distributed.GatherOptions()
        options.rootRank = 0
        own, into = [x.contiguous()], [found] if first else []
        self._wait(lambda: self._backend.gather(into, own, options))
        return found

    def most(self, value: int) -> int:
        held = torch.tensor([value], device=self._device)
        options: Any = torch.distributed.AllreduceOptions()
        options.reduceOp = torch.distributed.ReduceOp.MAX
        self._wait(lambda: self._backend.allreduce([held], options))
        return int(held.item())

    def fewest(self, value: int) -> int:
        """The smallest of all ranks' values."""
        return -self.most(-value)

    def abort(self) -> None:
        """End exchanges that are under way: those who wait for them get an error. From any thread, and
        more than once. gloo's end by themselves when the other rank's process does."""
        if self._backend is not None and self._device.type == "cuda" and not self._aborted:
            self._aborted = True
            self._backend.abort()

    def _wait(self, exchange: Callable[[], Any]) -> None:
        try:
            exchange().wait()
        except RuntimeError as error:
            raise PeerLost(f"An exchange between the ranks failed: {error}") from error


def _gloo(store: Any, shard: Shard, limit: timedelta) -> Any:
    from torch.distributed.distributed_c10d import ProcessGroupGloo

    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = limit
    options._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    return ProcessGroupGloo(store, shard.rank, shard.world, options)


def _nccl(store: Any, shard: Shard, limit: timedelta) -> Any:
    # By default NCCL's own watchdog ends the process when an exchange fails: the user's, on rank 0.
    # Ours ends the other ranks and aborts the exchange instead.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    from torch.distributed.distributed_c10d import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = limit
    return ProcessGroupNCCL(store, shard.rank, shard.world, options)
