"""Attention of one new token for each sequence over its paged K/V, split along the keys.

Signature: `q [seqs, heads, head_dim]` (row i belongs to sequence i; `qo_indptr` is not read), `kv`,
`scales` and tables as in extend_attention. Result: `[seqs, heads, head_dim]` in q's dtype and the
base-2 log-sum-exp, float32 `[seqs, heads]`; a sequence of no page (padding) gives 0 and -inf.

A tile's rows are the query heads of one KV head, so that tensor cores have work and K/V are read once
for all of them. A sequence's keys are cut into pieces whose length follows from its own length only:
its result does not depend on the batch. The grid depends on `max_kv_len` and the number of rows, so a
captured graph stays valid while lengths change below it.
"""

from __future__ import annotations

import torch

from agentkv.kernels.attend import attend, constants, finish, load_queries
from agentkv.kernels.boxes import attend_boxes, boxes_of
from agentkv.kernels.device import arch_of, runs_triton
from agentkv.kernels.extend_attention import part_buffers
from agentkv.kernels.jit import cdiv, jit, power_of_two, tl
from agentkv.kernels.merge_lse import merge_lse
from agentkv.kernels.paged import Paged
from agentkv.kernels.paged_attention import attention_reference
from agentkv.kernels.tuning import Config, pick


def decode_attention(
    q: torch.Tensor,
    kv: torch.Tensor,
    paged: Paged,
    *,
    scale: float,
    max_kv_len: int | None = None,
    window: int | None = None,
    softcap: float | None = None,
    scales: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`max_kv_len`: at least every sequence's length; None reads it from the tables, which waits for
    the device."""
    if not runs_triton(q):
        result, lse = decode_reference(
            q, kv, paged, scale=scale, window=window, softcap=softcap, scales=scales
        )
        return (result if out is None else out.copy_(result)), lse
    config = config or pick("decode", arch_of(q.device), q.shape[-1], kv.dtype, q.dtype)
    if max_kv_len is None:
        max_kv_len = int(paged.kv_lens().max()) if paged.seqs else 0
    n = max_splits(max_kv_len, window, config)
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    if n == 1:
        lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
        parts, lses, counts = out[None], lse[None], None
    else:
        parts, lses, counts = part_buffers(q, n)
    launch(
        q, kv, paged, n, parts, lses, counts, config,
        scale=scale, window=window, softcap=softcap, scales=scales,
    )  # fmt: skip
    if counts is None:
        return out, lses[0]
    return merge_lse(parts, lses, counts, out=out)


def decode_reference(
    q: torch.Tensor,
    kv: torch.Tensor,
    paged: Paged,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    scales: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The reference."""
    one = torch.arange(paged.seqs + 1, dtype=torch.int32, device=q.device)
    single = Paged(one, paged.kv_indptr, paged.kv_indices, paged.kv_last_page_len, paged.page_size)
    return attention_reference(
        q, kv, single, scale=scale, window=window, softcap=softcap, scales=scales, dtype=dtype
    )


def max_splits(max_kv_len: int, window: int | None, config: Config) -> int:
    """Pieces that a sequence of up to `max_kv_len` tokens is cut into at most."""
    # A window is read from the KV tile that it begins in.
    most = max_kv_len if window is None else min(max_kv_len, window + config.block_n)
    return max(1, min(config.max_splits, cdiv(most, config.min_split)))


def launch(
    q: torch.Tensor,
    kv: torch.Tensor,
    paged: Paged,
    splits: int,
    parts: torch.Tensor,
    lses: torch.Tensor,
    counts: torch.Tensor | None,
    config: Config,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: torch.Tensor | None,
    first_part: int = 0,
) -> None:
    """Run the kernel: piece s of a row goes to `parts[first_part + s]`, its lse beside it, and how many
    there are then to `counts`."""
    if not paged.seqs:
        return
    if config.min_split % config.block_n:
        raise ValueError("min_split must be a multiple of block_n")
    arch = arch_of(q.device)
    arguments, shape = constants(q, kv, arch, scale, window, softcap, scales)
    boxes = boxes_of(kv, paged.page_size, config, arch, shape["FP8"])
    _decode[(paged.seqs, kv.shape[2], splits)](
        q, *arguments, boxes, paged.kv_indptr, paged.kv_indices, paged.kv_last_page_len,
        parts, lses, counts, first_part,
        *q.stride()[:2], *parts.stride()[:3], *lses.stride(),
        **shape, PAGE=paged.page_size, BLOCK_M=max(config.block_m, power_of_two(shape["GROUP"])),
        BLOCK_N=config.block_n, MIN_SPLIT=config.min_split, MAX_SPLITS=config.max_splits,
        COUNTED=counts is not None, BOXED=boxes is not None, num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


@jit(varying="first_part lpart", unaligned="Scales KvIndptr KvIndices LastLen Lse Counts")
def _decode(
    Q, K, V, Scales, stride, khead, scale, inner, cap, unit, Boxes, KvIndptr, KvIndices,
    LastLen, Out, Lse, Counts, first_part, qrow, qhead, opart, orow, ohead, lpart, lrow, lhead,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, WINDOW: tl.constexpr,
    CAPPED: tl.constexpr, FP8: tl.constexpr, COMPUTE: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, MIN_SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr, COUNTED: tl.constexpr, BOXED: tl.constexpr,
):  # fmt: skip
    seq = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    page0 = tl.load(KvIndptr + seq)
    end = tl.load(KvIndptr + seq + 1) - page0
    if PAGE > 1:
        last = tl.load(LastLen + seq, mask=end > 0, other=0)
        end = tl.where(end > 0, (end - 1) * PAGE + last, 0)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(end - WINDOW, 0) // BLOCK_N * BLOCK_N
    keys = end - first
    # MIN_SPLIT, or the next multiple of BLOCK_N that makes do with MAX_SPLITS pieces.
    size = tl.maximum(MIN_SPLIT, tl.cdiv(tl.cdiv(keys, MAX_SPLITS), BLOCK_N) * BLOCK_N)
    n = tl.maximum(1, tl.cdiv(keys, size))
    if COUNTED:
        tl.store(Counts + seq, first_part + n, mask=(split == 0) & (kv_head == 0))
    if split >= n:
        return
    low = first + split * size
    high = tl.minimum(end, low + size)

    lane = tl.arange(0, BLOCK_D)
    i = tl.arange(0, BLOCK_M)
    real = i < GROUP
    head = kv_head * GROUP + i
    q = load_queries(
        Q + seq * qrow + head[:, None] * qhead + lane[None, :],
        real[:, None] & (lane[None, :] < D),
        COMPUTE,
    )
    if FP8 > 0:
        kv_heads = tl.num_programs(1)
        scale = scale * tl.load(Scales + kv_head) * unit
        inner = inner * tl.load(Scales + kv_head) * unit
        unit = unit * tl.load(Scales + kv_heads + kv_head)
    at = tl.zeros([BLOCK_M], tl.int32) + (end - 1)
    most = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    pages = KvIndices + page0
    if BOXED:
        if WINDOW == 0:
            # Only the last tile has boxes that must be cleared of what is behind the end.
            full = low + (high - low) // BLOCK_N * BLOCK_N
            most, total, acc = attend_boxes(
                q, most, total, acc, low, full, high, at, pages, Boxes, kv_head, scale, inner, cap,
                BLOCK_D, BLOCK_N, PAGE, False, False, WINDOW, CAPPED, FP8, COMPUTE,
            )  # fmt: skip
            low = full
        most, total, acc = attend_boxes(
            q, most, total, acc, low, high, high, at, pages, Boxes, kv_head, scale, inner, cap,
            BLOCK_D, BLOCK_N, PAGE, True, False, WINDOW, CAPPED, FP8, COMPUTE,
        )  # fmt: skip
    else:
        most, total, acc = attend(
            q, most, total, acc, low, high, high, at, pages, K + kv_head * khead,
            V + kv_head * khead, stride, scale, inner, cap,
            D, BLOCK_D, BLOCK_N, PAGE, True, False, WINDOW, CAPPED, FP8, COMPUTE,
        )  # fmt: skip
    result, lse = finish(most, total, acc, unit)
    part = (first_part + split).to(tl.int64)
    tl.store(
        Out + part * opart + seq * orow + head[:, None] * ohead + lane[None, :],
        result.to(Out.dtype.element_ty),
        mask=real[:, None] & (lane[None, :] < D),
    )
    tl.store(Lse + part * lpart + seq * lrow + head * lhead, lse, mask=real)
