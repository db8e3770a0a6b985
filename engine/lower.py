"""LowerTiers: what an engine has below its pool: memory, files, a mover, and measured costs.

One for the engine's life; `make` gives each new cache its `Tiers`. The worker is its only user.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from agentkv.engine.config import EngineConfig, bytes_of, host_bytes
from agentkv.engine.device import Device
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.backed import TIERS, BackedTree
from agentkv.engine.kv.copies import Copies, StreamCopies
from agentkv.engine.kv.costs import Costs, Link
from agentkv.engine.kv.disk import DiskStore
from agentkv.engine.kv.mover import PoolMover, page_bytes
from agentkv.engine.kv.pages import PageAllocator
from agentkv.engine.kv.pool import KV_DTYPES, KVPool, dtype_name, narrower
from agentkv.engine.kv.store import Layout, Store
from agentkv.engine.kv.tiers import Tiers
from agentkv.engine.kv.tree import Namespace
from agentkv.engine.memory import available_bytes
from agentkv.engine.run.parallel_runner import Parallel
from agentkv.kernels.fp8 import digest

STAGING_BYTES = 256 << 20
"""The host pool of an engine that has a disk tier and names no host tier."""

PROBE_TOKENS = 128

CLOSE_SECONDS = 10.0
"""How long closing may take to bring to disk what is not there yet."""


class LowerTiers:
    """Host pool, disk store, mover and costs. Raises `InvalidRequest` when the host tier does not
    fit into memory, or the directory cannot be used."""

    def __init__(
        self,
        config: EngineConfig,
        pool: KVPool,
        fingerprint: str,
        post: Callable[[Callable[[], None]], None],
        forward: Callable[[int], None],
        device: Device | None = None,
        parallel: Parallel | None = None,
    ) -> None:
        """`device`: that of the pool, where it is not the CPU's memory. `parallel`: where each rank has
        a part of the KV heads; sizes are those of all parts."""
        self.config = config
        world = 1 if parallel is None else parallel.world
        heads = pool.kv_heads * world
        page = config.page_size
        dtype = pool.dtype if config.host_kv_dtype == "auto" else KV_DTYPES[config.host_kv_dtype]
        self.lossy = narrower(dtype, pool.dtype)
        """What comes back is not always, to the last bit, what was computed."""
        token = KVPool.bytes_per_token(pool.layers, heads, pool.head_dim, dtype)
        whole = pool.slots * token
        wanted = host_bytes(config.host_cache, whole) or min(STAGING_BYTES, whole)
        available = available_bytes()
        if wanted > available * 3 // 4:
            raise InvalidRequest(
                f"host_cache asks for {wanted / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB of "
                "memory are available; three quarters of that at most.",
                param="host_cache",
            )
        self.host_pages = max(1, wanted // (token * page))
        self.host = KVPool(
            layers=pool.layers,
            slots=self.host_pages * page,
            kv_heads=pool.kv_heads,
            head_dim=pool.head_dim,
            dtype=dtype,
            scales=pool.scales,
            zeros=None if device is None else device.pinned,
        )
        copies = (
            Copies(pool, self.host) if device is None else StreamCopies(device, pool, self.host)
        )
        if parallel is not None:
            copies = parallel.copies(copies)
        self.store: Store | None = None
        if config.stored:
            layout = Layout(
                model=fingerprint,
                dtype=dtype_name(dtype),
                scales="" if pool.scales is None else digest(pool.scales),
                page_size=page,
                layers=pool.layers,
                kv_heads=heads,
                head_dim=pool.head_dim,
                page_bytes=world * page_bytes(self.host, page),
            )
            self.store = _open_store(config, layout)
        self.costs = Costs(
            {"host": token, "disk": token},
            {"host": _host_link(copies), "disk": _store_link(self.store)},
            _prefill_rate(forward),
            always=config.load_policy == "always",
        )
        self.mover = PoolMover(pool, self.host, page, post, self.store, copies)
        most = DiskStore.group_bytes if self.store is None else self.store.group_bytes
        self._file_tokens = max(page, most // token)
        self.tiers: Tiers | None = None

    def make(self, tree: BackedTree, pages: PageAllocator) -> Tiers:
        """The tiers of a new cache. What an earlier one had on the host is forgotten."""
        self.mover.reset()
        self.tiers = Tiers(
            tree,
            pages,
            self.mover,
            self.costs,
            host_pages=self.host_pages,
            disk=self.store is not None,
            write=self.config.host_write,
            hits=self.config.host_write_hits,
            most_stored=self._file_tokens,
            storable=self._storable,
        )
        return self.tiers

    def finish(self, run_posted: Callable[[], None]) -> None:
        """Bring to disk what is not there yet, within `CLOSE_SECONDS`. `run_posted` runs what the
        mover has posted."""
        if self.tiers is None or self.store is None:
            return
        self.tiers.store_all()
        self.tiers.work()
        deadline = time.monotonic() + CLOSE_SECONDS
        while self.tiers.busy and time.monotonic() < deadline:
            run_posted()
            time.sleep(0.002)

    def stats(self) -> dict[str, dict[str, float]]:
        """By tier: its size and what is in it, what moved, and what moving is expected to cost."""
        assert self.tiers is not None
        page = self.config.page_size
        out: dict[str, dict[str, float]] = {}
        for index, name in enumerate(TIERS):
            if name == "disk" and self.store is None:
                continue
            counts, link = self.tiers.counts[index], self.costs.links[name]
            out[name] = {
                "tokens": self.tiers.tree.backed_tokens[index],
                "stored_tokens_total": counts.stored,
                "loaded_tokens_total": counts.loaded,
                "declined_tokens_total": counts.declined,
                "skipped_tokens_total": counts.skipped,
                "failed_transfers_total": counts.failed,
                "evicted_tokens_total": self.tiers.tree.evicted_from[index],
                "bytes_per_second": link.bandwidth,
                "fixed_ms": link.fixed * 1000,
            }
        out["host"]["capacity_tokens"] = self.host_pages * page
        out["host"]["free_tokens"] = self.tiers.host_pages.free_pages * page
        if self.store is not None:
            out["disk"] |= self.store.counters()
        out["compute"] = {"tokens_per_second": self.costs.prefill_rate}
        return out

    def close(self) -> None:
        self.mover.close()

    def _storable(self, namespace: Namespace) -> bool:
        return self.config.disk_store == "all" or ("salt", None) in namespace


def _host_link(copies: Copies) -> Link:
    """Copy a few slots up, and see."""
    host = copies.host
    count = min(PROBE_TOKENS, host.slots, copies.device.slots)
    slots = np.arange(count, dtype=np.int32)
    best = min(_seconds(lambda: copies.up(slots, slots, copies.mark())) for _ in range(3))
    token = host.token_bytes // host.kv_heads * copies.kv_heads
    return Link(bandwidth=count * token / best, fixed=0.0005)


def _open_store(config: EngineConfig, layout: Layout) -> Store:
    """The directory or the server that `config` names. Raises `InvalidRequest`."""
    limit, age = bytes_of(config.disk_size, "disk_size"), config.disk_max_age
    if config.remote_cache is not None:
        from agentkv.engine.kv.redis import RedisStore

        return RedisStore(config.remote_cache, layout, limit=limit, max_age=age)
    assert config.disk_cache is not None
    name = config.served_name or config.model.rstrip("/").rsplit("/", 1)[-1]
    return DiskStore(Path(config.disk_cache), layout, limit=limit, max_age=age, label=name)


def _store_link(store: Store | None) -> Link:
    if store is None:
        return Link(1e9)
    bandwidth, fixed = store.probe()
    return Link(bandwidth, fixed)


def _prefill_rate(forward: Callable[[int], None]) -> float:
    forward(PROBE_TOKENS)
    return PROBE_TOKENS / _seconds(lambda: forward(PROBE_TOKENS))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return max(1e-6, time.perf_counter() - began)
