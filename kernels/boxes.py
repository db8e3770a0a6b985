"""attend's loop with K and V read by a tensor descriptor: one box a page, copied by the TMA unit.

A tile of `BLOCK_N` keys is `BLOCK_N / BOX` boxes of `BOX` rows, the smaller of a page and a tile. Tiles
begin where those of `attend` do and follow its rules; within a tile sums are taken in another order, so
last bits may differ from its, but here too they do not depend on a row's batch.

The descriptor is made on the host (`triton.tools.tensor_descriptor.TensorDescriptor`): one that a
program makes for itself (`tl.make_tensor_descriptor`) costs each program a write to global memory, a
fence, and an allocator that the process must set. It is a parameter of the launch and holds the pool's
address, shape and strides, nothing of the batch: a captured CUDA graph keeps it by value, which stays
right because a pool never moves.
"""

# ruff: noqa: RUF005  (kernels cannot unpack tuples)

from __future__ import annotations

from typing import Any

import torch

from agentkv.kernels.attend import BITS, masked_scores, widen
from agentkv.kernels.jit import jit, power_of_two, tl
from agentkv.kernels.tuning import Config

LEAST_PAGE = 16
"""Tokens: a box of fewer rows is no matrix operand."""


def has_boxes(arch: str) -> bool:
    """Whether the architecture copies boxes in hardware (NVIDIA from 9.0 on); the interpreter plays it."""
    return arch == "interpreter" or (arch.startswith("sm_") and int(arch[3:]) >= 90)


def boxes_of(kv: torch.Tensor, page: int, config: Config, arch: str, fp8: int) -> Any:
    """The descriptor of a pool `[2, slots, kv_heads, head_dim]`, as `[2, kv_heads, slots, head_dim]`.

    None where the configuration wants none, and where pages or strides allow none: then pointers are
    used. `fp8`: how codes are widened. Raises ValueError for an architecture that has no such unit.
    """
    if not config.tma:
        return None
    if not has_boxes(arch):
        raise ValueError(
            f"a configuration with tma needs sm_90 or newer, and this is {arch}: take the 7th value "
            "out of its row of the tuning table"
        )
    size = kv.element_size()
    if page < LEAST_PAGE or config.block_n < LEAST_PAGE:
        return None
    if kv.data_ptr() % 16 or any(s * size % 16 for s in kv.stride()[:3]):
        return None
    from triton.tools.tensor_descriptor import TensorDescriptor

    codes = kv.view(torch.uint8) if fp8 == BITS else kv
    turned = codes.transpose(1, 2)
    block = [1, 1, min(page, config.block_n), max(16, power_of_two(kv.shape[3]))]
    return TensorDescriptor(turned, list(turned.shape), list(turned.stride()), block)


@jit
def rows_of(
    pages, start, end, COUNT: tl.constexpr, BOX: tl.constexpr, PAGE: tl.constexpr
):  # fmt: skip
    """Rows of the pool where the boxes of the tile at `start` begin.

    What begins at `end` or behind has a row in front of the pool: the unit fills such a box with zeros
    and reads nothing.
    """
    rows = ()
    for j in tl.static_range(COUNT):
        first = start + j * BOX
        page = tl.load(pages + first // PAGE, mask=first < end, other=-1)
        rows = rows + (page * PAGE + first % PAGE,)
    return rows


@jit
def attend_boxes(
    q, most, total, acc, low, high, end, at, pages, boxes, kv_head, scale, inner, cap,
    BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr, MASKED: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAPPED: tl.constexpr, FP8: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """`attend` over boxes. A box is read whole: what lies behind `end` is in it, may be anything, and
    is taken out of scores and values; a box that begins there is not read at all."""
    BOX: tl.constexpr = PAGE if PAGE < BLOCK_N else BLOCK_N
    # From one tile for the next: a load that a copy of the same turn of the loop hangs on would take
    # one of the pipeline's stages for itself.
    rows = rows_of(pages, low, high, BLOCK_N // BOX, BOX, PAGE)
    for start in tl.range(low, high, BLOCK_N):
        keys, scores, shares, values = (), (), (), ()
        for j in tl.static_range(BLOCK_N // BOX):
            keys = keys + (boxes.load([0, kv_head, rows[j], 0]).reshape([BOX, BLOCK_D]),)
        for j in tl.static_range(BLOCK_N // BOX):
            s = tl.dot(q, tl.trans(widen(keys[j], FP8, COMPUTE)), input_precision="ieee")
            where = start + j * BOX + tl.arange(0, BOX)
            s = masked_scores(
                s, where, where < end, at, scale, inner, cap, MASKED, CAUSAL, WINDOW, CAPPED
            )
            scores = scores + (s,)
        # Boxes are laid over each other first: to reduce a row, warps have to wait for each other.
        highest = scores[0]
        for j in tl.static_range(1, BLOCK_N // BOX):
            highest = tl.maximum(highest, scores[j])
        peak = tl.maximum(most, tl.max(highest, 1))
        base = tl.where(peak == float("-inf"), 0.0, peak)  # a row that has seen nothing yet
        fade = tl.exp2(most - base)
        acc = acc * fade[:, None]
        for j in tl.static_range(BLOCK_N // BOX):
            shares = shares + (tl.exp2(scores[j] - base[:, None]),)
            values = values + (boxes.load([1, kv_head, rows[j], 0]).reshape([BOX, BLOCK_D]),)
        for j in tl.static_range(BLOCK_N // BOX):
            v = widen(values[j], FP8, COMPUTE)
            if MASKED:
                there = start + j * BOX + tl.arange(0, BOX) < end
                v = tl.where(there[:, None], v, 0.0)  # 0 times what is there might be NaN
            acc = tl.dot(shares[j].to(COMPUTE), v, acc, input_precision="ieee")
        weight = shares[0]
        for j in tl.static_range(1, BLOCK_N // BOX):
            weight = weight + shares[j]
        total = total * fade + tl.sum(weight, 1)
        most = peak
        rows = rows_of(pages, start + BLOCK_N, high, BLOCK_N // BOX, BOX, PAGE)
    return most, total, acc
