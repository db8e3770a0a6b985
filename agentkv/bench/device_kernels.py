"""The attention kernels on the device: right first, then fast, beside their roof and their peers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch

from agentkv.bench import device_exact as exact
from agentkv.bench import device_peers as peers
from agentkv.bench.device_batch import Batch, make, to_device
from agentkv.bench.device_run import Run, Section
from agentkv.bench.device_sizes import FP8
from agentkv.engine.attention.triton import LEAST_GAIN, LEAST_SHARED
from agentkv.kernels.cascade_attention import cascade_attention, gain_bound, plan_cascade
from agentkv.kernels.decode_attention import decode_attention
from agentkv.kernels.extend_attention import extend_attention, plan_extend

PAGE = 16


def decode(run: Run, section: Section) -> None:
    """One query a sequence: all of it is reading K and V."""
    s = run.sizes
    dense: dict[tuple[int, int], float | None] = {}
    grid = itertools.product((s.dtype, FP8), s.pages, s.decode_lengths, s.decode_batches)
    for dtype, page, length, count in grid:
        with run.case(section, f"decode: {_name(dtype)} page {page}, {count} x {length}"):
            need = 2 * count * length * s.heads.kv_heads * s.heads.dim * dtype.itemsize
            if not run.fits(need):
                section.note(
                    f"{count} x {length} in {_name(dtype)} does not fit the device's memory"
                )
                continue
            row = _decode(run, section, dtype, page, length, count)
            # Dense K/V of torch take as much again, so the batch is gone by now.
            if dtype != FP8 and (count, length) not in dense:
                dense[count, length] = peers.sdpa_decode(run, section, count, length)
            section.add(**row, **_beside(row, "sdpa", dense.get((count, length))))


def _decode(
    run: Run, section: Section, dtype: torch.dtype, page: int, length: int, count: int
) -> dict[str, Any]:
    batch = make(
        [length] * count, [1] * count, page=page, kv_dtype=dtype, q_dtype=run.sizes.dtype,
        device=run.device, heads=run.sizes.heads, seed=run.seed,
    )  # fmt: skip

    def work() -> torch.Tensor:
        return decode_attention(batch.q, batch.kv, batch.paged, max_kv_len=length, **batch.rule())[
            0
        ]

    right = exact.attention(batch, work())
    seconds = run.clock.time(work)
    rate = batch.kv_bytes / seconds
    row = {
        "kv": _name(dtype), "page": page, "batch": count, "length": length,
        "error": right.error, "right": right.ok, "ms": 1e3 * seconds,
        "gb_per_s": rate / 1e9, "of_copy": run.share(rate, "copy"),
    }  # fmt: skip
    return row | _beside(row, "flashinfer", peers.flashinfer(run, section, batch))


def extend(run: Run, section: Section) -> None:
    """Prompts, cold and behind a cached prefix: matrix units at work."""
    s = run.sizes
    cases: list[tuple[torch.dtype, int, int, int]] = [
        (s.dtype, PAGE, new, before) for new, before in s.extend
    ]
    longest = max(new for new, _ in s.extend)
    cases += [(s.dtype, 1, longest, 0), (FP8, PAGE, longest, 0)]
    for dtype, page, new, before in cases:
        count = max(1, s.extend_tokens // new)
        what = f"extend: {_name(dtype)} page {page}, {count} x {new} behind {before}"
        with run.case(section, what):
            row = _extend(run, section, dtype, page, new, before, count)
            dense = peers.sdpa_extend(run, section, count, new, before)
            section.add(**row, **_beside(row, "sdpa", dense))


def _extend(
    run: Run, section: Section, dtype: torch.dtype, page: int, new: int, before: int, count: int
) -> dict[str, Any]:
    h = run.sizes.heads
    batch = make(
        [before + new] * count, [new] * count, page=page, kv_dtype=dtype,
        q_dtype=run.sizes.dtype, device=run.device, heads=h, seed=run.seed,
    )  # fmt: skip
    tiles = plan_extend(
        batch.tables[0], batch.lens, heads=h.heads, kv_heads=h.kv_heads, head_dim=h.dim,
        q_dtype=run.sizes.dtype, kv_dtype=dtype, device=run.device,
    )  # fmt: skip

    def work() -> torch.Tensor:
        return extend_attention(batch.q, batch.kv, batch.paged, tiles=tiles, **batch.rule())[0]

    right = exact.attention(batch, work())
    seconds = run.clock.time(work)
    rate = batch.flops / seconds
    row = {
        "kv": _name(dtype), "page": page, "batch": count, "new": new, "before": before,
        "error": right.error, "right": right.ok, "ms": 1e3 * seconds,
        "tflop_per_s": rate / 1e12, "of_matrix": run.share(rate, "matrix"),
    }  # fmt: skip
    return row | _beside(row, "flashinfer", peers.flashinfer(run, section, batch))


def cascade(run: Run, section: Section) -> None:
    """Sequences that share a prefix: its K/V read once, beside the decode kernel on the same tables."""
    for prefix, count in itertools.product(run.sizes.cascade_prefixes, run.sizes.cascade_batches):
        with run.case(section, f"cascade: {count} sharing {prefix}"):
            section.add(**_cascade(run, prefix, count))
    section.note(
        "flat: the decode kernel, whose reads of the shared pages the device's cache may answer; "
        "taken: whether the engine would take the cascade."
    )


def _cascade(run: Run, prefix: int, count: int) -> dict[str, Any]:
    s = run.sizes
    batch, own, shared = sharing(run, count, prefix, s.cascade_own)
    plan = plan_cascade(
        shared, own.paged, shared_len=prefix, rows=count, heads=s.heads.heads,
        kv_heads=s.heads.kv_heads, head_dim=s.heads.dim, q_dtype=s.dtype, kv_dtype=s.dtype,
    )  # fmt: skip

    def together() -> torch.Tensor:
        return cascade_attention(
            own.q, own.kv, shared, own.paged, plan=plan, shared_len=prefix,
            max_kv_len=s.cascade_own, **own.rule(),
        )[0]  # fmt: skip

    def apart() -> torch.Tensor:
        return decode_attention(
            batch.q, batch.kv, batch.paged, max_kv_len=prefix + s.cascade_own, **batch.rule()
        )[0]

    right = exact.attention(batch, together())
    flat, cascaded = run.clock.time(apart), run.clock.time(together)
    bound = gain_bound(prefix, s.cascade_own, count)
    taken = prefix >= LEAST_SHARED and bound >= LEAST_GAIN
    return {
        "batch": count, "prefix": prefix, "own": s.cascade_own, "error": right.error,
        "right": right.ok, "flat_ms": 1e3 * flat, "ms": 1e3 * cascaded, "gain": flat / cascaded,
        "bound": bound, "of_bound": flat / cascaded / bound, "taken": "yes" if taken else "no",
    }  # fmt: skip


def sharing(run: Run, count: int, prefix: int, own: int) -> tuple[Batch, Batch, torch.Tensor]:
    """`count` sequences that begin with the same pages: whole, their own parts, and those pages."""
    s = run.sizes
    pages = prefix // PAGE
    each = -(-own // PAGE)
    # One pool in which the prefix is there once: sequence 0 is the prefix, the others are own parts.
    pool = make(
        [prefix, *[own] * count], [0, *[1] * count], page=PAGE, kv_dtype=s.dtype, q_dtype=s.dtype,
        device=run.device, heads=s.heads, seed=run.seed,
    )  # fmt: skip
    _, _, table, last = pool.tables
    first, mine = table[:pages], table[pages:].reshape(count, each)
    rows = np.arange(count + 1, dtype=np.int32)
    new = np.ones(count, np.int32)

    def batch(tables: tuple[Any, Any, Any, Any], lens: int) -> Batch:
        return Batch(
            s.heads, pool.q, pool.kv, pool.scales, to_device(tables, PAGE, run.device),
            np.full(count, lens, np.int32), new, tables,
        )  # fmt: skip

    whole = np.concatenate([np.broadcast_to(first, (count, pages)), mine], axis=1)
    shared = torch.from_numpy(first.copy()).to(run.device)
    return (
        batch((rows, rows * (pages + each), whole.ravel(), last[1:]), prefix + own),
        batch((rows, rows * each, mine.ravel(), last[1:]), own),
        shared,
    )


def _beside(row: dict[str, Any], peer: str, seconds: float | None) -> dict[str, Any]:
    """A peer's time, and how many times as fast as it the row's kernel is."""
    return {
        f"{peer}_ms": None if seconds is None else 1e3 * seconds,
        f"vs_{peer}": None if seconds is None else 1e3 * seconds / row["ms"],
    }


def _name(dtype: torch.dtype) -> str:
    return "fp8" if dtype == FP8 else str(dtype).removeprefix("torch.")
