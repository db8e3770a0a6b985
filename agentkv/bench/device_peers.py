"""What others take for the same attention: torch's flash kernel on dense K/V, and FlashInfer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from agentkv.bench.device_batch import Batch
from agentkv.bench.device_facts import installed
from agentkv.bench.device_run import Run, Section
from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.types import IntArray

Work = Callable[[], object]


def sdpa_decode(run: Run, section: Section, batch: int, length: int) -> float | None:
    """Seconds of one query a sequence over dense K/V `[batch, length, kv_heads, dim]`.

    The query heads of a KV head go as rows: the same sums, and K/V are read once for them.
    """
    h = run.sizes.heads
    if not run.peers or not run.fits(2 * batch * length * h.kv_heads * h.dim * 2):
        return None
    k, v = (_dense(run, (batch, length, h.kv_heads, h.dim)) for _ in "kv")
    q = _dense(run, (batch, h.heads // h.kv_heads, h.kv_heads, h.dim))
    return _first(run, section, [lambda: functional.scaled_dot_product_attention(q, k, v)])


def sdpa_extend(run: Run, section: Section, batch: int, new: int, before: int) -> float | None:
    """Seconds of `new` queries a sequence behind `before` tokens, causal."""
    h = run.sizes.heads
    if not run.peers:
        return None
    q = _dense(run, (batch, new, h.heads, h.dim))
    k, v = (_dense(run, (batch, before + new, h.kv_heads, h.dim)) for _ in "kv")
    return _first(run, section, list(_causal(q, k, v, new, before)))


def _causal(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, new: int, before: int
) -> Iterator[Work]:
    """Ways to say it, the cheapest first: not every version of torch takes each."""
    attend = functional.scaled_dot_product_attention
    bias = causal_lower_right(new, before + new)
    if not before:
        yield lambda: attend(q, k, v, is_causal=True, enable_gqa=True)
    else:
        yield lambda: attend(q, k, v, attn_mask=bias, enable_gqa=True)
    group = q.shape[1] // k.shape[1]
    # K/V repeated for each query head, outside of the measurement.
    wide_k, wide_v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    if not before:
        yield lambda: attend(q, wide_k, wide_v, is_causal=True)
    else:
        yield lambda: attend(q, wide_k, wide_v, attn_mask=bias)


def _first(run: Run, section: Section, ways: list[Work]) -> float | None:
    """The time of the first way that torch's flash backend takes."""
    backend = SDPBackend.FLASH_ATTENTION
    fault = ""
    for way in ways:
        try:
            with sdpa_kernel(backend):
                return run.clock.time(way)
        except (RuntimeError, NotImplementedError, TypeError, AssertionError) as error:
            fault = (str(error).splitlines() or [type(error).__name__])[0]
    section.note(f"SDPA's flash backend took none of the shapes tried: {fault[:160]}")
    return None


def _dense(run: Run, shape: tuple[int, ...]) -> torch.Tensor:
    """`[batch, length, heads, dim]` in memory, as torch wants to see it: heads before length."""
    full = torch.empty(shape, dtype=run.sizes.dtype, device=run.device)
    return full.normal_().transpose(1, 2)


def flashinfer(run: Run, section: Section, batch: Batch) -> float | None:
    """Seconds of FlashInfer on the very same pool and tables; None where it is not installed."""
    if not run.peers or run.device.type != "cuda":
        return None
    if installed("flashinfer-python") is None:
        section.note("FlashInfer is not installed: pip install flashinfer-python")
        return None
    from agentkv.engine.attention.flashinfer import FlashInferAttention

    h = batch.heads
    spec = AttentionSpec(num_heads=h.heads, num_kv_heads=h.kv_heads, head_dim=h.dim, scale=h.scale)
    try:
        attention = FlashInferAttention(batch.page, device=run.device)
        plan = attention.plan(batch.tables[0], _ends(batch), batch.slots())
        return run.clock.time(lambda: attention.run(batch.q, batch.kv, plan, spec, batch.scales))
    except Exception as error:  # it compiles on the spot, and what fails there is its own affair
        section.note(f"FlashInfer failed: {(str(error).splitlines() or [''])[0][:160]}")
        return None


def _ends(batch: Batch) -> IntArray:
    return np.concatenate(([0], np.cumsum(batch.lens))).astype(np.int32)
