"""Root mean square norm: `x / sqrt(mean(x^2) + eps) * weight` over the last axis.

Signature: `x [..., n]`, `weight [n]`, both of one dtype; the result has x's shape and dtype.
Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

from __future__ import annotations

import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The reference: the mean in float32, the product with the weight in x's dtype."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + eps)
    return wide.to(x.dtype) * weight
