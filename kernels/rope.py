"""Rotary position embedding over adjacent pairs.

Signature: `x [rows, heads, head_dim]`, `cos` and `sin` `[rows, head_dim / 2]` in float32; pair i is
`(x[..., 2 i], x[..., 2 i + 1])`. Result: x's shape and dtype, computed in float32.

Checkpoints store the two halves of a head apart (pair i is `(x[i], x[i + head_dim / 2])`);
`interleave` reorders the rows of such a projection, so that the rotation touches neighbours.
Scores are sums over the head's dimensions, so a common reordering of q and k changes nothing.
Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
"""

from __future__ import annotations

import torch


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The reference."""
    pairs = x.float().unflatten(-1, (-1, 2))
    even, odd = pairs[..., 0], pairs[..., 1]
    cos, sin = cos[:, None, :], sin[:, None, :]
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return turned.flatten(-2).to(x.dtype)


def interleave(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Rows of `weight [heads * head_dim, ...]` from halves-apart to adjacent-pair order."""
    halves = weight.unflatten(0, (-1, 2, head_dim // 2))
    return halves.transpose(1, 2).flatten(0, 2).contiguous()
