"""Batches for the checks: what no row may see is NaN, and what no program may read is out of bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from agentkv.kernels import fp8
from agentkv.kernels.paged import Paged
from agentkv.kernels.tuning import Config
from tests.kernels.interpreter import repair, sanitise  # noqa: F401  (patch the interpreter)

SMALL = Config(block_m=32, block_n=32, warps=4, stages=1, min_split=32, max_splits=4)
F32, BF16, FP8 = torch.float32, torch.bfloat16, fp8.FP8


@dataclass
class Batch:
    """`kv_lens`: tokens of each sequence. `scales`: of an FP8 pool."""

    q: torch.Tensor
    kv: torch.Tensor
    paged: Paged
    kv_lens: list[int]
    scales: torch.Tensor | None
    scale: float


def batch(
    new: list[int],
    lens: list[int],
    *,
    page: int = 1,
    group: int = 2,
    kv_heads: int = 2,
    dim: int = 64,
    q_dtype: torch.dtype = F32,
    kv_dtype: torch.dtype = F32,
    unit: float = 1.0,
    seed: int = 0,
) -> Batch:
    """Sequences of `lens` tokens, the last `new` of which are queries. `unit`: the size of FP8 scales."""
    make = torch.Generator().manual_seed(seed)
    pages = [-(-n // page) for n in lens]
    used = sum(pages)
    order = torch.randperm(used + 3, generator=make).int()[:used]
    last = torch.tensor([n - (p - 1) * page if n else 0 for n, p in zip(lens, pages, strict=True)])
    # The table has no entry behind the last page; entries before the first lead nowhere.
    table = torch.cat((torch.full((2,), 1 << 28, dtype=torch.int32), order))
    paged = Paged(
        torch.tensor(np.cumsum([0, *new]), dtype=torch.int32),
        torch.tensor(np.cumsum([2, *pages]), dtype=torch.int32),
        table,
        None if page == 1 else last.int(),
        page,
    )
    kv = torch.full((2, (used + 3) * page, kv_heads, dim), torch.nan)
    slots = torch.cat([paged.slots(i) for i in range(len(lens))])
    kv[:, slots] = torch.randn((2, len(slots), kv_heads, dim), generator=make)
    scales = None
    if kv_dtype == FP8:
        # Numbers use the whole range of codes, some beyond it.
        scales = unit * (1.0 + torch.rand((2, kv_heads), generator=make))
        kv = fp8.encode(kv * 120 * unit, scales)
    else:
        kv = kv.to(kv_dtype)
    q = torch.randn((sum(new), kv_heads * group, dim), generator=make).to(q_dtype)
    scale = dim**-0.5 / (120 * unit if kv_dtype == FP8 else 1.0)
    return Batch(q, kv, paged, lens, scales, scale)


def close(
    found: tuple[torch.Tensor, torch.Tensor],
    expected: tuple[torch.Tensor, torch.Tensor],
    b: Batch,
) -> None:
    """Output and lse agree, as well as the dtypes let them."""
    narrow = b.q.dtype != F32
    out, lse = found[0].double(), found[1].double()
    assert out.isfinite().all(), "what is hidden was read"
    # V's size differs by head where it is scaled.
    size = expected[0].abs().amax(dim=(0, 2), keepdim=True).clamp_min(1e-30)
    error = ((out - expected[0]) / size).abs().max() if out.numel() else torch.tensor(0.0)
    assert error < (8e-3 if narrow else 1e-5), f"output is off by {float(error):.2e}"
    assert torch.equal(lse.isinf(), expected[1].isinf())
    apart = torch.where(lse.isinf(), 0.0, lse - expected[1]).abs().max() if lse.numel() else 0.0
    assert apart < (3e-3 if b.kv.dtype == FP8 and narrow else 2e-5), f"lse is off by {apart:.2e}"
