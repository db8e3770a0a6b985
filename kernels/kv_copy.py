"""Copy whole pages between one pool layer and a page-major buffer of another tier.

Signature: pool layer `kv [2, slots, kv_heads, head_dim]`, page p in slots `[p * page_size, (p+1) *
page_size)`; buffer `[n, 2, page_size, kv_heads, head_dim]`, the same dtype, in which entry i is page
`pages[i]` (int32 `[n]`). Tiers keep `[pages, layers, 2, page_size, kv_heads, head_dim]`: pass
`buffer[:, layer]`. Bytes are copied as they are, FP8 codes too, so a page comes back bit for bit.
"""

from __future__ import annotations

import torch

from agentkv.kernels.device import runs_triton
from agentkv.kernels.jit import cdiv, jit, tl

_BLOCK = 2048


def kv_gather(kv: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor, page_size: int) -> None:
    """From the pool into the buffer."""
    _copy(kv, pages, buffer, page_size, out=True)


def kv_scatter(buffer: torch.Tensor, kv: torch.Tensor, pages: torch.Tensor, page_size: int) -> None:
    """From the buffer into the pool; each page once."""
    _copy(kv, pages, buffer, page_size, out=False)


def kv_gather_reference(
    kv: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor, page_size: int
) -> None:
    """The reference."""
    rows = _raw(kv)[:, _slots(pages, page_size)]
    _raw(buffer).copy_(rows.unflatten(1, (len(pages), page_size)).transpose(0, 1))


def kv_scatter_reference(
    buffer: torch.Tensor, kv: torch.Tensor, pages: torch.Tensor, page_size: int
) -> None:
    """The reference."""
    rows = _raw(buffer).transpose(0, 1).flatten(1, 2)
    _raw(kv).index_copy_(1, _slots(pages, page_size), rows)


def _slots(pages: torch.Tensor, page_size: int) -> torch.Tensor:
    step = torch.arange(page_size, device=pages.device)
    return (pages.long()[:, None] * page_size + step).ravel()


def _raw(x: torch.Tensor) -> torch.Tensor:
    """Bytes in the place of FP8 codes, for which indexing is not there everywhere."""
    return x.view(torch.uint8) if x.dtype == torch.float8_e4m3fn else x


def _copy(
    kv: torch.Tensor, pages: torch.Tensor, buffer: torch.Tensor, page_size: int, *, out: bool
) -> None:
    wanted = (len(pages), 2, page_size, *kv.shape[2:])
    if tuple(buffer.shape) != wanted or buffer.dtype != kv.dtype:
        raise ValueError(f"the buffer must be {list(wanted)} of {kv.dtype}")
    if not runs_triton(kv):
        if out:
            kv_gather_reference(kv, pages, buffer, page_size)
        else:
            kv_scatter_reference(buffer, kv, pages, page_size)
        return
    if kv[0].is_contiguous() and buffer[:1, 0].is_contiguous() and len(pages):
        # A page of one side is one run of bytes in both: four of them are copied as one number.
        pool, target = kv.flatten(2).view(torch.int32), buffer.flatten(3).view(torch.int32)
        run = page_size * pool.shape[2]
        _pages[(len(pages), 2, cdiv(run, _BLOCK))](
            pool, target, pages, run, pool.stride(0), *target.stride()[:2],
            BLOCK=_BLOCK, OUT=out, num_warps=4,
        )  # fmt: skip
    elif len(pages):
        raise ValueError("a page of the pool and of the buffer must each be contiguous")


@jit(unaligned="Pages")
def _pages(
    Pool, Buffer, Pages, run, side_stride, page_stride, buffer_side, BLOCK: tl.constexpr,
    OUT: tl.constexpr,
):  # fmt: skip
    entry = tl.program_id(0).to(tl.int64)
    side = tl.program_id(1).to(tl.int64)
    lane = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < run
    page = tl.load(Pages + entry).to(tl.int64)
    pool = Pool + side * side_stride + page * run + lane
    buffer = Buffer + entry * page_stride + side * buffer_side + lane
    if OUT:
        tl.store(buffer, tl.load(pool, mask=mask), mask=mask)
    else:
        tl.store(pool, tl.load(buffer, mask=mask), mask=mask)
