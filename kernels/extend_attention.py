"""Attention of a ragged batch of new tokens over their sequences' paged K/V: prefill, cold or warm.

Signature: `q [rows, heads, head_dim]` (float32, float16, bfloat16), `kv [2, slots, kv_heads,
head_dim]` (those, or float8_e4m3fn with `scales` float32 `[2, kv_heads]`), tables as in `Paged`. The
rows of a sequence are its last positions, and their K/V are in the pool: a new token attends to what
was kept of it, so that a prefix gives the same answer whether it was just computed or found.
Result: `[rows, heads, head_dim]` in q's dtype and the base-2 log-sum-exp, float32 `[rows, heads]`.
Rows behind the planned ones are padding: output 0, lse -inf.

A tile holds `block_m // group` tokens with all query heads of one KV head, so K and V are read once
for the group. With `split` a program reads that many positions at most, and the parts are merged:
for few new tokens behind a long prefix. FP8 is widened in registers; K's scale goes into the scores,
V's into the output.
"""

from __future__ import annotations

from typing import Any

import torch

from agentkv.kernels.attend import attend, constants, finish, load_queries
from agentkv.kernels.boxes import attend_boxes, boxes_of
from agentkv.kernels.device import arch_of, runs_triton
from agentkv.kernels.jit import jit, tl
from agentkv.kernels.merge_lse import merge_lse
from agentkv.kernels.paged import Paged
from agentkv.kernels.paged_attention import attention_reference
from agentkv.kernels.tiles import Tiles, plan_tiles
from agentkv.kernels.tuning import Config, pick


def plan_extend(
    qo_indptr: Any,
    kv_lens: Any,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    q_dtype: torch.dtype,
    kv_dtype: torch.dtype,
    device: torch.device | str,
    split: int = 0,
    causal: bool = True,
    config: Config | None = None,
) -> Tiles:
    """The batch's list of work, for all layers of this shape. `qo_indptr [seqs + 1]`, `kv_lens [seqs]`:
    integers on the host. `split`: a multiple of 128, or 0. A constant one leaves a row's result
    independent of the batch, and of how much of its sequence was new."""
    config = config or pick("extend", arch_of(device), head_dim, kv_dtype, q_dtype)
    if split % max(128, config.block_n):
        raise ValueError(f"split must be a multiple of {max(128, config.block_n)}, and is {split}")
    rows = tokens_of(config, heads // kv_heads)
    return plan_tiles(qo_indptr, kv_lens, rows, device=device, split=split, causal=causal)


def tokens_of(config: Config, group: int) -> int:
    """Tokens of one tile, each with `group` query heads."""
    if group > config.block_m:
        raise ValueError(f"a group of {group} query heads needs a tile of as many rows")
    return config.block_m // group


def extend_attention(
    q: torch.Tensor,
    kv: torch.Tensor,
    paged: Paged,
    *,
    scale: float,
    tiles: Tiles | None = None,
    window: int | None = None,
    softcap: float | None = None,
    scales: torch.Tensor | None = None,
    causal: bool = True,
    out: torch.Tensor | None = None,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`tiles=None` plans from the tables, which waits for the device. `config` must be the one that
    the tiles were planned with."""
    if not runs_triton(q):
        result, lse = attention_reference(
            q, kv, paged, scale=scale, window=window, softcap=softcap, scales=scales, causal=causal
        )
        return (result if out is None else out.copy_(result)), lse
    config = config or pick("extend", arch_of(q.device), q.shape[-1], kv.dtype, q.dtype)
    if tiles is None:
        lens = paged.kv_lens().cpu()
        rows = tokens_of(config, q.shape[1] // kv.shape[2])
        tiles = plan_tiles(paged.qo_indptr.cpu(), lens, rows, device=q.device, causal=causal)
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    if tiles.parts == 1:
        lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
        parts, lses, counts = out[None], lse[None], None
    else:
        parts, lses, counts = part_buffers(q, tiles.parts)
    out[tiles.rows :] = 0
    lses[:, tiles.rows :] = float("-inf")
    if counts is not None:
        counts[tiles.rows :] = 0
    launch(
        q, kv, paged, tiles, parts, lses, counts, config,
        scale=scale, window=window, softcap=softcap, scales=scales, causal=causal,
    )  # fmt: skip
    if counts is None:
        return out, lses[0]
    return merge_lse(parts, lses, counts, out=out)


def part_buffers(q: torch.Tensor, parts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Room for outputs, lses and numbers of parts of q's rows."""
    return (
        torch.empty((parts, *q.shape), dtype=torch.float32, device=q.device),
        torch.empty((parts, *q.shape[:2]), dtype=torch.float32, device=q.device),
        torch.empty(q.shape[:1], dtype=torch.int32, device=q.device),
    )


def launch(
    q: torch.Tensor,
    kv: torch.Tensor,
    paged: Paged,
    tiles: Tiles,
    parts: torch.Tensor,
    lses: torch.Tensor,
    counts: torch.Tensor | None,
    config: Config,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: torch.Tensor | None,
    causal: bool,
    positions: torch.Tensor | None = None,
    first_part: int = 0,
) -> None:
    """Run the kernel: part s of a row goes to `parts[first_part + s]`, its lse beside it, and how many
    there are then to `counts`. `positions` int32 `[rows]`: where rows stand, when they are not the
    last of their sequence."""
    if not len(tiles.work):
        return
    arch = arch_of(q.device)
    arguments, shape = constants(q, kv, arch, scale, window, softcap, scales)
    boxes = boxes_of(kv, paged.page_size, config, arch, shape["FP8"])
    if tiles.block_rows != config.block_m // shape["GROUP"]:
        raise ValueError("the tiles were planned for another configuration")
    _extend[(len(tiles.work), kv.shape[2])](
        q, *arguments, boxes, paged.qo_indptr, paged.kv_indptr, paged.kv_indices,
        paged.kv_last_page_len, tiles.work, positions, parts, lses, counts,
        tiles.split, first_part, *q.stride()[:2], *parts.stride()[:3], *lses.stride(),
        **shape, PAGE=paged.page_size, BLOCK_M=config.block_m, BLOCK_N=config.block_n,
        CAUSAL=causal, SPLIT=tiles.split > 0, PLACED=positions is not None,
        COUNTED=counts is not None, BOXED=boxes is not None,
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


@jit(
    varying="split_len first_part lpart",
    unaligned="Scales QoIndptr KvIndptr KvIndices LastLen Work Positions Lse Counts",
)
def _extend(
    Q, K, V, Scales, stride, khead, scale, inner, cap, unit, Boxes, QoIndptr, KvIndptr,
    KvIndices, LastLen, Work, Positions, Out, Lse, Counts, split_len, first_part,
    qrow, qhead, opart, orow, ohead, lpart, lrow, lhead,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, WINDOW: tl.constexpr,
    CAPPED: tl.constexpr, FP8: tl.constexpr, COMPUTE: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, SPLIT: tl.constexpr,
    PLACED: tl.constexpr, COUNTED: tl.constexpr, BOXED: tl.constexpr,
):  # fmt: skip
    ROWS: tl.constexpr = BLOCK_M // GROUP
    work = Work + tl.program_id(0) * 3
    kv_head = tl.program_id(1)
    seq = tl.load(work)
    top = tl.load(work + 1)
    split = tl.load(work + 2)
    row0 = tl.load(QoIndptr + seq)
    new = tl.load(QoIndptr + seq + 1) - row0
    page0 = tl.load(KvIndptr + seq)
    end = tl.load(KvIndptr + seq + 1) - page0
    if PAGE > 1:
        last = tl.load(LastLen + seq, mask=end > 0, other=0)
        end = tl.where(end > 0, (end - 1) * PAGE + last, 0)

    lane = tl.arange(0, BLOCK_D)
    i = tl.arange(0, BLOCK_M)
    token = top + i // GROUP
    head = kv_head * GROUP + i % GROUP
    real = (i < ROWS * GROUP) & (token < new)
    row = (row0 + token).to(tl.int64)
    at = tl.load(Positions + row, mask=real, other=0) if PLACED else end - new + token
    q = load_queries(
        Q + row[:, None] * qrow + head[:, None] * qhead + lane[None, :],
        real[:, None] & (lane[None, :] < D),
        COMPUTE,
    )

    low = 0
    high = end
    if CAUSAL:
        high = tl.minimum(end, end - new + tl.minimum(top + ROWS, new))
    if COUNTED:
        n = tl.maximum(1, tl.cdiv(high, split_len)) if SPLIT else 1
        first_one = (kv_head == 0) & (split == 0)
        total_parts = tl.zeros([BLOCK_M], tl.int32) + first_part + n
        tl.store(Counts + row, total_parts, mask=real & (i % GROUP == 0) & first_one)
    if SPLIT:
        low = split * split_len
        high = tl.minimum(high, low + split_len)
    full = high
    if CAUSAL:
        full = tl.minimum(high, end - new + top + 1)
    if WINDOW > 0 and not PLACED:
        low = tl.maximum(low, tl.maximum(end - new + top - WINDOW + 1, 0) // BLOCK_N * BLOCK_N)

    if FP8 > 0:
        kv_heads = tl.num_programs(1)
        scale = scale * tl.load(Scales + kv_head) * unit
        inner = inner * tl.load(Scales + kv_head) * unit
        unit = unit * tl.load(Scales + kv_heads + kv_head)
    K += kv_head * khead
    V += kv_head * khead
    pages = KvIndices + page0
    most = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    if WINDOW == 0 and not CAPPED:
        full = low + tl.maximum(full - low, 0) // BLOCK_N * BLOCK_N
        if BOXED:
            most, total, acc = attend_boxes(
                q, most, total, acc, low, full, end, at, pages, Boxes, kv_head, scale, inner, cap,
                BLOCK_D, BLOCK_N, PAGE, False, CAUSAL, WINDOW, CAPPED, FP8, COMPUTE,
            )  # fmt: skip
        else:
            most, total, acc = attend(
                q, most, total, acc, low, full, end, at, pages, K, V, stride, scale, inner, cap,
                D, BLOCK_D, BLOCK_N, PAGE, False, CAUSAL, WINDOW, CAPPED, FP8, COMPUTE,
            )  # fmt: skip
        low = full
    if BOXED:
        most, total, acc = attend_boxes(
            q, most, total, acc, low, high, high, at, pages, Boxes, kv_head, scale, inner, cap,
            BLOCK_D, BLOCK_N, PAGE, True, CAUSAL, WINDOW, CAPPED, FP8, COMPUTE,
        )  # fmt: skip
    else:
        most, total, acc = attend(
            q, most, total, acc, low, high, high, at, pages, K, V, stride, scale, inner, cap,
            D, BLOCK_D, BLOCK_N, PAGE, True, CAUSAL, WINDOW, CAPPED, FP8, COMPUTE,
        )  # fmt: skip
    result, lse = finish(most, total, acc, unit)
    part = (first_part + split).to(tl.int64)
    tl.store(
        Out + part * opart + row[:, None] * orow + head[:, None] * ohead + lane[None, :],
        result.to(Out.dtype.element_ty),
        mask=real[:, None] & (lane[None, :] < D),
    )
    tl.store(Lse + part * lpart + row * lrow + head * lhead, lse, mask=real)
