"""The order of a head's dimensions in which rotation touches neighbours.

Checkpoints store the two halves of a head apart (pair i is `(x[i], x[i + head_dim / 2])`). Scores are
sums over the head's dimensions, so a common reordering of q and k changes nothing.
"""

from __future__ import annotations

import torch


def interleave(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Rows of `weight [heads * head_dim, ...]` from halves-apart to adjacent-pair order."""
    halves = weight.unflatten(0, (-1, 2, head_dim // 2))
    return halves.transpose(1, 2).flatten(0, 2).contiguous()
