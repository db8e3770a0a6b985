"""A Llama's forward by fused kernels: fewer launches, and nothing that waits for the device.

    x += what the last product gave, h = norm(x)      one kernel (rms_norm with residual)
    norms of q and k, and their rotation              one kernel
    silu(gate) * up                                   one kernel, behind one product for both

The numbers are those of `Llama.forward` but for rounding. It may be recorded as a graph.

With `fixed_rows` every product has so many rows (the runner pads batches to whole multiples): a matrix
library chooses how to add up by the shape, and a row's last bits would depend on what else is in the
batch. `alike` tells whether it then treats all rows of a product alike, which is not written anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from agentkv.engine.model.linear import Linear
from agentkv.engine.model.load import Attend, Tokens
from agentkv.kernels.qk_norm_rope import qk_norm_rope
from agentkv.kernels.rms_norm import rms_norm
from agentkv.kernels.rope import rope
from agentkv.kernels.silu_mul import silu_mul

if TYPE_CHECKING:
    from agentkv.engine.model.llama import Layer, Llama

FIXED_ROWS = 128
"""Rows of every product in deterministic mode. One token takes as long as 128 where reading the weights
is what takes time; a long prompt is cut into that many more products."""

Product = Callable[[Linear, torch.Tensor], torch.Tensor]


def forward(model: Llama, tokens: Tokens, attend: Attend) -> torch.Tensor:
    """`LoadedModel.forward`."""
    c, eps = model.config, model.config.rms_norm_eps
    rows, heads, turned = tokens.ids.shape[0], c.num_heads, c.num_heads + c.num_kv_heads
    table, product = model.rotations(), product_by(model.fixed_rows)
    x = functional.embedding(tokens.ids, model.embedding)
    h = rms_norm(x, model.layers[0].input_norm, eps)
    for index, layer in enumerate(model.layers):
        qkv = product(layer.qkv, h).view(rows, turned + c.num_kv_heads, c.head_dim)
        qk = qkv[:, :turned]
        turn = table if layer.rotates else None
        if layer.qk_norm is not None:
            qk_norm_rope(qk, layer.qk_norm, turn, tokens.positions, eps)
        elif turn is not None:
            rope(qk, turn, tokens.positions)
        kv = qkv[:, heads:].unflatten(1, (2, c.num_kv_heads))
        seen = product(layer.out, attend(index, qkv[:, :heads], kv))
        h = rms_norm(seen, layer.mlp_norm, eps, residual=x)
        more = product(layer.down, _gated(layer, h, product))
        if index + 1 < len(model.layers):
            h = rms_norm(more, model.layers[index + 1].input_norm, eps, residual=x)
        else:
            x.add_(more)
    if not tokens.logit_rows.numel():
        return x.new_empty((0, c.vocab_size), dtype=torch.float32)
    wanted = rms_norm(x.index_select(0, tokens.logit_rows), model.norm, eps)
    return product(model.head, wanted).float()


def product_by(rows: int | None) -> Product:
    """How to multiply: as it comes, or in pieces of `rows` rows."""
    if rows is None:
        return lambda linear, x: linear(x)
    return lambda linear, x: torch.cat([linear(part) for part in x.split(rows)])


def _gated(layer: Layer, h: torch.Tensor, product: Product) -> torch.Tensor:
    if layer.gate_up is None:
        return silu_mul(product(layer.gate, h), product(layer.up, h))
    gate, up = product(layer.gate_up, h).chunk(2, dim=-1)
    return silu_mul(gate, up)


def alike(linears: Iterable[Linear], rows: int) -> bool:
    """Whether a row of a product of `rows` rows has the same bits wherever it stands in it, and
    whatever the others are."""
    seen: set[tuple[int, int]] = set()
    for linear in linears:
        shape = (linear.outputs, linear.inputs)
        if shape in seen:
            continue
        seen.add(shape)
        maker = torch.Generator().manual_seed(0)
        x = torch.randn(rows, linear.inputs, generator=maker).to(linear.device, linear.dtype)
        whole = linear(x)
        for shift in (1, 7, rows // 2, rows - 1):
            if not torch.equal(linear(x.roll(shift, 0)).roll(-shift, 0), whole):
                return False
        lone = torch.zeros_like(x)
        lone[rows // 3] = x[rows // 3]
        if not torch.equal(linear(lone)[rows // 3], whole[rows // 3]):
            return False
    return True
