"""The kernels beside attention, on a step's worth of rows: right, and how near the copy roof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from agentkv.bench import device_exact as exact
from agentkv.bench.device_batch import FP8_SCALE, pool
from agentkv.bench.device_run import Run, Section
from agentkv.bench.device_sizes import FP8
from agentkv.kernels.kv_copy import kv_gather, kv_gather_reference, kv_scatter
from agentkv.kernels.kv_store import kv_store, kv_store_reference
from agentkv.kernels.merge_lse import merge_lse, merge_lse_reference
from agentkv.kernels.qk_norm_rope import qk_norm_rope, qk_norm_rope_reference
from agentkv.kernels.rms_norm import rms_norm, rms_norm_reference
from agentkv.kernels.rope import rope, rope_reference
from agentkv.kernels.sampling import sample, sample_reference
from agentkv.kernels.silu_mul import silu_mul, silu_mul_reference

EPS = 1e-5
PAGE = 16
PARTS = 8

Case = tuple[str, int, Callable[[], object], Callable[[], exact.Agreement]]
"""Name, bytes that must be moved, the work, and whether it is right."""


def measure(run: Run, section: Section) -> None:
    """All of them."""
    for cases in (_norms, _rotations, _stores, _copies, _merges, _samples):
        for name, size, work, check in cases(run):
            with run.case(section, f"small kernels: {name}"):
                right = check()
                seconds = run.clock.time(work)
                rate = size / seconds
                section.add(
                    kernel=name, error=right.error, right=right.ok, ms=1e3 * seconds,
                    gb_per_s=rate / 1e9, of_copy=run.share(rate, "copy"),
                )  # fmt: skip


def _random(run: Run, *shape: int) -> torch.Tensor:
    maker = torch.Generator(run.device).manual_seed(run.seed)
    full = torch.empty(shape, dtype=run.sizes.dtype, device=run.device)
    return full.normal_(generator=maker)


def _norms(run: Run) -> Iterator[Case]:
    s = run.sizes
    n, inner, rows = s.model.hidden, s.model.inner, s.rows
    x, residual, weight = _random(run, rows, n), _random(run, rows, n), _random(run, n)

    def norm_right() -> exact.Agreement:
        ours, theirs = residual.clone(), residual.clone()
        got = rms_norm(x, weight, EPS, residual=ours)
        expected = rms_norm_reference(x, weight, EPS, residual=theirs)
        return _worst(exact.agreement(got, expected), exact.agreement(ours, theirs))

    yield (
        "rms_norm + residual", 4 * x.nbytes,
        lambda: rms_norm(x, weight, EPS, residual=residual), norm_right,
    )  # fmt: skip
    both = _random(run, rows, 2 * inner)
    gate, up = both.chunk(2, dim=-1)
    yield (
        "silu_mul", both.nbytes * 3 // 2, lambda: silu_mul(gate, up),
        lambda: exact.agreement(silu_mul(gate, up), silu_mul_reference(gate, up)),
    )  # fmt: skip


def _rotations(run: Run) -> Iterator[Case]:
    h, rows = run.sizes.heads, run.sizes.rows
    count = h.heads + h.kv_heads
    qk, weight = _random(run, rows, count, h.dim), _random(run, count, h.dim)
    angle = torch.rand(rows, h.dim // 2, device=run.device) * 2 * math.pi
    table = torch.stack((angle.cos(), angle.sin()), dim=-1)
    at = torch.arange(rows, device=run.device)
    yield (
        "rope", 2 * qk.nbytes, lambda: rope(qk, table, at),
        lambda: exact.agreement(
            rope(qk.clone(), table, at), rope_reference(qk.clone(), table, at)
        ),
    )  # fmt: skip
    yield (
        "qk_norm_rope", 2 * qk.nbytes, lambda: qk_norm_rope(qk, weight, table, at, EPS),
        lambda: exact.agreement(
            qk_norm_rope(qk.clone(), weight, table, at, EPS),
            qk_norm_rope_reference(qk.clone(), weight, table, at, EPS),
        ),
    )  # fmt: skip


def _stores(run: Run) -> Iterator[Case]:
    yield _store(run, run.sizes.dtype, "kv_store")
    yield _store(run, FP8, "kv_store fp8")


def _store(run: Run, dtype: torch.dtype, name: str) -> Case:
    h, rows = run.sizes.heads, run.sizes.rows
    kv = _random(run, rows, 2, h.kv_heads, h.dim)
    k, v = kv[:, 0], kv[:, 1]
    slots = torch.randperm(rows, device=run.device).int()
    fp8 = dtype == FP8
    scales = torch.full((2, h.kv_heads), FP8_SCALE, device=run.device) if fp8 else None
    empty = torch.zeros((2, rows, h.kv_heads, h.dim), dtype=run.sizes.dtype, device=run.device)
    pools = [empty.to(dtype).clone() for _ in range(2)]

    def right() -> exact.Agreement:
        kv_store(k, v, pools[0], slots, scales)
        kv_store_reference(k, v, pools[1], slots, scales)
        got, expected = (p.view(torch.uint8).float() if fp8 else p for p in pools)
        return exact.agreement(got, expected, limit=0.0)

    size = kv.nbytes + pools[0].nbytes
    return name, size, lambda: kv_store(k, v, pools[0], slots, scales), right


def _copies(run: Run) -> Iterator[Case]:
    s = run.sizes
    count = max(1, s.rows // PAGE)
    layer, _ = pool(count * PAGE, s.heads, s.dtype, run.device, seed=run.seed)
    pages = torch.randperm(count, device=run.device).int()
    shape = (count, 2, PAGE, s.heads.kv_heads, s.heads.dim)
    buffer = torch.empty(shape, dtype=s.dtype, device=run.device)
    other, back = torch.empty_like(buffer), torch.zeros_like(layer)

    def gathered() -> exact.Agreement:
        kv_gather(layer, pages, buffer, PAGE)
        kv_gather_reference(layer, pages, other, PAGE)
        return exact.agreement(buffer, other, limit=0.0)

    def scattered() -> exact.Agreement:
        kv_scatter(buffer, back, pages, PAGE)
        return exact.agreement(back, layer, limit=0.0)

    yield (
        "kv_gather", 2 * buffer.nbytes, lambda: kv_gather(layer, pages, buffer, PAGE), gathered,
    )  # fmt: skip
    yield (
        "kv_scatter", 2 * buffer.nbytes, lambda: kv_scatter(buffer, back, pages, PAGE), scattered,
    )  # fmt: skip


def _merges(run: Run) -> Iterator[Case]:
    h = run.sizes.heads
    rows = max(1, run.sizes.rows // PARTS)
    parts = torch.randn(PARTS, rows, h.heads, h.dim, device=run.device)
    lse = torch.randn(PARTS, rows, h.heads, device=run.device)
    dtype = run.sizes.dtype
    size = parts.nbytes + rows * h.heads * h.dim * dtype.itemsize
    yield (
        "merge_lse", size, lambda: merge_lse(parts, lse, dtype=dtype),
        lambda: exact.agreement(
            merge_lse(parts, lse, dtype=dtype)[0], merge_lse_reference(parts, lse, dtype=dtype)[0]
        ),
    )  # fmt: skip


def _samples(run: Run) -> Iterator[Case]:
    rows = min(64, run.sizes.rows)
    maker = torch.Generator(run.device).manual_seed(run.seed)
    vocab = run.sizes.model.vocab
    logits = torch.randn(rows, vocab, generator=maker, device=run.device) * 4
    one = torch.ones(rows, device=run.device)
    top_k = torch.full((rows,), 50, dtype=torch.int32, device=run.device)
    draws = torch.rand(rows, generator=maker, device=run.device)
    arguments = (logits, 0.8 * one, top_k, 0.9 * one, 0.0 * one, draws)

    def right() -> exact.Agreement:
        # Sums of another order may tip a draw that falls on the edge between two tokens.
        differ = (sample(*arguments) != sample_reference(*arguments)).float().mean()
        return exact.Agreement(float(differ), 0.05)

    yield "sample (top-k 50, top-p 0.9)", logits.nbytes, lambda: sample(*arguments), right


def _worst(*found: exact.Agreement) -> exact.Agreement:
    return max(found, key=lambda a: a.error / a.limit)
