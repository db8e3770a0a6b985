"""K/V between tiers where a model is shared out: every rank copies its own heads.

    rank 0    tree, tiers, files         RankCopies --DOWN, UP, PUT, FETCH--> rank i
    rank i    a host pool of its own, with the slots of rank 0's            RankHost

A rank does what it is told in the order in which it was told, steps among it. So it need not say when
a copy has ended: what is computed later from these slots comes later. Files hold whole pages, as those
of an engine of one rank do: rank 0 gathers and cuts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from agentkv.engine.device import Device, Event
from agentkv.engine.kv.copies import Copies, StreamCopies
from agentkv.engine.kv.pool import KV_DTYPES, KVPool, dtype_name
from agentkv.engine.model.shard import Shard
from agentkv.engine.run.parallel import Ranks
from agentkv.engine.run.parallel_link import Kind
from agentkv.engine.types import IntArray


class RankCopies(Copies):
    """`Copies` of all ranks, by rank 0, whose own they go through."""

    def __init__(self, own: Copies, ranks: Ranks) -> None:
        super().__init__(own.device, own.host)
        self._own = own
        self._ranks = ranks
        self._shards = [Shard(rank, ranks.world) for rank in range(ranks.world)]
        self.kv_heads = own.host.kv_heads * ranks.world
        self.at_once_bytes = own.at_once_bytes

    def mark(self) -> Event | None:
        return self._own.mark()

    def down(self, device: IntArray, host: IntArray, after: Event | None = None) -> None:
        self._ranks.tell(Kind.DOWN, pair(device, host))
        self._own.down(device, host, after)

    def up(self, host: IntArray, device: IntArray, after: Event | None = None) -> None:
        self._ranks.tell(Kind.UP, pair(host, device))
        self._own.up(host, device, after)

    def put(self, layers: list[torch.Tensor], device: IntArray, after: Event | None = None) -> None:
        parts = [
            [rows[:, :, shard.part(self.kv_heads)] for rows in layers] for shard in self._shards
        ]
        self._ranks.tell_each(Kind.PUT, [with_rows(device, part) for part in parts[1:]])
        self._own.put(parts[0], device, after)

    def gather(self, host: IntArray) -> list[torch.Tensor]:
        self._ranks.tell(Kind.FETCH, host.astype(np.int32).tobytes())
        own = self._own.gather(host)
        shape = (self.host.layers, *own[0].shape)
        others = [_tensor(raw, self.host.dtype, shape) for raw in self._ranks.wait(Kind.ROWS)]
        return [torch.cat([rows, *(o[i] for o in others)], dim=2) for i, rows in enumerate(own)]


class RankHost:
    """The host pool of another rank, and its copies. On the thread that runs its steps."""

    def __init__(self, pool: KVPool, device: Device | None, settings: dict[str, Any]) -> None:
        """`settings`: what `host_settings` says."""
        host = KVPool(
            layers=pool.layers,
            slots=settings["slots"],
            kv_heads=pool.kv_heads,
            head_dim=pool.head_dim,
            dtype=KV_DTYPES[settings["dtype"]],
            scales=pool.scales,
            zeros=None if device is None else device.pinned,
        )
        self._copies = Copies(pool, host) if device is None else StreamCopies(device, pool, host)

    @torch.inference_mode()
    def do(self, kind: Kind, payload: bytearray, say: Callable[[Kind, bytes], None]) -> bool:
        """Carry out a command. `say`: how to answer. False when it is none of these."""
        copies = self._copies
        if kind is Kind.DOWN:
            copies.down(*split(payload), copies.mark())
        elif kind is Kind.UP:
            copies.up(*split(payload), copies.mark())
        elif kind is Kind.PUT:
            slots, layers = self._rows_of(payload)
            copies.put(layers, slots, copies.mark())
        elif kind is Kind.FETCH:
            rows = copies.gather(np.frombuffer(payload, dtype=np.int32))
            say(Kind.ROWS, _bytes(rows))
        else:
            return False
        return True

    def _rows_of(self, payload: bytearray) -> tuple[IntArray, list[torch.Tensor]]:
        count = int(np.frombuffer(payload, dtype=np.int32, count=1)[0])
        slots = np.frombuffer(payload, dtype=np.int32, count=count, offset=4)
        host = self._copies.host
        shape = (host.layers, 2, count, host.kv_heads, host.head_dim)
        raw = payload[4 + 4 * count :]
        return slots, list(_tensor(raw, host.dtype, shape))


def host_settings(host: KVPool) -> dict[str, Any]:
    """What another rank has to know of rank 0's host pool."""
    return {"slots": host.slots, "dtype": dtype_name(host.dtype)}


def pair(one: IntArray, other: IntArray) -> bytes:
    """Two lists of slots, of one length."""
    return np.concatenate([one, other]).astype(np.int32).tobytes()


def split(payload: bytearray) -> tuple[IntArray, IntArray]:
    """What `pair` was given."""
    both = np.frombuffer(payload, dtype=np.int32)
    return both[: len(both) // 2], both[len(both) // 2 :]


def with_rows(slots: IntArray, layers: Sequence[torch.Tensor]) -> bytes:
    """Slots, and the K/V to write to them: of each layer `[2, n, kv_heads, head_dim]`."""
    head = np.concatenate([[len(slots)], slots]).astype(np.int32).tobytes()
    return head + _bytes(layers)


def _bytes(layers: Sequence[torch.Tensor]) -> bytes:
    return b"".join(rows.contiguous().view(torch.uint8).numpy().tobytes() for rows in layers)


def _tensor(raw: bytearray, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype).view(shape)
