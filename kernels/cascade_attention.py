"""Attention of a batch whose sequences begin with one shared prefix: its K/V are read once for all.

Signature: `q`, `kv` and `scales` as in extend_attention. `shared` int32 `[pages]` holds the pages of
the prefix, `shared_len` tokens in whole pages; `paged` holds what each sequence has *behind* it (its
own part, the new tokens among it). Result as in extend_attention, over prefix and own part.

One pass takes the rows of all sequences as the queries of the prefix, which they all see; another is
the usual one over the own parts; both write partial results, which are merged by their log-sum-exp.
The prefix is cut into pieces by its own length only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from agentkv.kernels import decode_attention as decode
from agentkv.kernels import extend_attention as extend
from agentkv.kernels.device import arch_of, runs_triton
from agentkv.kernels.jit import cdiv
from agentkv.kernels.merge_lse import merge_lse, merge_lse_reference
from agentkv.kernels.paged import Paged
from agentkv.kernels.paged_attention import attention_reference
from agentkv.kernels.tiles import Tiles, plan_tiles
from agentkv.kernels.tuning import Config, pick


@dataclass(frozen=True, slots=True)
class CascadePlan:
    """What the pass over the prefix needs beside the pool: made once a batch, for all layers.

    `prefix`: all rows as the queries of one sequence. `positions`: where the rows stand in their
    whole sequences, int32 `[rows]`.
    """

    prefix: Paged
    tiles: Tiles
    positions: torch.Tensor
    shared_len: int


def plan_cascade(
    shared: torch.Tensor,
    paged: Paged,
    *,
    shared_len: int,
    rows: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    q_dtype: torch.dtype,
    kv_dtype: torch.dtype,
    config: Config | None = None,
) -> CascadePlan:
    """`rows`: of all sequences together. The other arguments as in `cascade_attention`."""
    _check(shared, paged, shared_len)
    config = config or pick("cascade", arch_of(shared.device), head_dim, kv_dtype, q_dtype)
    tiles = plan_tiles(
        [0, rows], [shared_len], extend.tokens_of(config, heads // kv_heads),
        device=shared.device, split=prefix_split(shared_len, config), causal=False,
    )  # fmt: skip
    prefix = _as_one(shared, paged, rows)
    return CascadePlan(prefix, tiles, _positions(paged, shared_len, rows), shared_len)


def cascade_attention(
    q: torch.Tensor,
    kv: torch.Tensor,
    shared: torch.Tensor,
    paged: Paged,
    *,
    scale: float,
    shared_len: int,
    plan: CascadePlan | None = None,
    tiles: Tiles | None = None,
    max_kv_len: int | None = None,
    window: int | None = None,
    softcap: float | None = None,
    scales: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    config: Config | None = None,
    own_config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """With `max_kv_len` (at least every own part's length) each sequence must have one row, and the
    decode kernel does the own parts; otherwise the extend kernel does, by `tiles` or, without, by
    planning from the tables. `plan`: of `plan_cascade`, without which it is made anew each time.
    `config` is that of the pass over the prefix."""
    _check(shared, paged, shared_len)
    if not runs_triton(q):
        result, lse = cascade_reference(
            q, kv, shared, paged,
            scale=scale, shared_len=shared_len, window=window, softcap=softcap, scales=scales,
        )  # fmt: skip
        return (result if out is None else out.copy_(result)), lse
    rule = {"scale": scale, "window": window, "softcap": softcap, "scales": scales}
    arch, dims = arch_of(q.device), (q.shape[-1], kv.dtype, q.dtype)
    config = config or pick("cascade", arch, *dims)
    own_config = own_config or pick("extend" if max_kv_len is None else "decode", arch, *dims)
    group = q.shape[1] // kv.shape[2]
    if max_kv_len is None and tiles is None:
        lens, indptr = paged.kv_lens().cpu(), paged.qo_indptr.cpu()
        tiles = plan_tiles(indptr, lens, extend.tokens_of(own_config, group), device=q.device)
    if max_kv_len is not None:
        rows = paged.seqs
        own = decode.max_splits(max_kv_len, window, own_config)
    else:
        assert tiles is not None
        rows, own = tiles.rows, tiles.parts

    if plan is None:
        plan = plan_cascade(
            shared, paged, shared_len=shared_len, rows=rows, heads=q.shape[1], kv_heads=kv.shape[2],
            head_dim=q.shape[2], q_dtype=q.dtype, kv_dtype=kv.dtype, config=config,
        )  # fmt: skip
    first = plan.tiles.parts if shared_len else 0
    parts, lses, counts = extend.part_buffers(q, first + own)
    counts[rows:] = 0
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    if first:
        extend.launch(
            q, kv, plan.prefix, plan.tiles, parts, lses, None, config,
            causal=False, positions=None if window is None else plan.positions, **rule,
        )  # fmt: skip
    if max_kv_len is not None:
        decode.launch(q, kv, paged, own, parts, lses, counts, own_config, first_part=first, **rule)
    else:
        extend.launch(
            q, kv, paged, tiles, parts, lses, counts, own_config,
            causal=True, first_part=first, **rule,
        )  # fmt: skip
    return merge_lse(parts, lses, counts, out=out)


def cascade_reference(
    q: torch.Tensor,
    kv: torch.Tensor,
    shared: torch.Tensor,
    paged: Paged,
    *,
    scale: float,
    shared_len: int,
    window: int | None = None,
    softcap: float | None = None,
    scales: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The reference: both passes in `dtype`, merged."""
    rows = int(paged.qo_indptr[-1])
    whole = _as_one(shared, paged, rows)
    at = _positions(paged, shared_len, rows)
    both = [
        attention_reference(
            q, kv, table, scale=scale, window=window, softcap=softcap, scales=scales,
            causal=causal, positions=None if causal else at, dtype=dtype,
        )
        for table, causal in ((whole, False), (paged, True))
    ]  # fmt: skip
    parts, lses = (torch.stack(x) for x in zip(*both, strict=True))
    out, lse = merge_lse_reference(parts.to(dtype), lses)
    return out.to(both[0][0].dtype), lse


def prefix_split(shared_len: int, config: Config) -> int:
    """Keys of the prefix that one program reads: by the prefix's length only."""
    piece = cdiv(cdiv(max(1, shared_len), config.max_splits), config.block_n) * config.block_n
    return max(config.min_split, piece)


def gain_bound(shared_len: int, own_len: float, sequences: int) -> float:
    """How many times fewer keys a cascade reads: (P + S) / (P / B + S)."""
    flat = shared_len + own_len
    read = shared_len / max(1, sequences) + own_len
    return flat / read if read else math.inf


def _check(shared: torch.Tensor, paged: Paged, shared_len: int) -> None:
    if shared.dtype != torch.int32:
        raise TypeError("the shared prefix's pages must be int32")
    if shared_len != shared.shape[0] * paged.page_size:
        raise ValueError(
            f"a shared prefix is whole pages: {shared.shape[0]} pages of {paged.page_size} tokens "
            f"are not {shared_len}"
        )


def _as_one(shared: torch.Tensor, paged: Paged, rows: int) -> Paged:
    """All rows of the batch as the queries of one sequence, the prefix."""
    ends = torch.tensor([[0, rows], [0, shared.shape[0]]], dtype=torch.int32)
    ends = ends.to(shared.device, non_blocking=True)
    last = torch.full((1,), paged.page_size, dtype=torch.int32, device=shared.device)
    return Paged(ends[0], ends[1], shared, last, paged.page_size)


def _positions(paged: Paged, shared_len: int, rows: int) -> torch.Tensor:
    """Where each row stands in its whole sequence, int32 `[rows]`."""
    row = torch.arange(rows, dtype=torch.int32, device=paged.qo_indptr.device)
    seq = torch.searchsorted(paged.qo_indptr[1:], row, right=True)
    behind = paged.qo_indptr[1:][seq] - row
    return (shared_len + paged.kv_lens()[seq] - behind).to(torch.int32)
