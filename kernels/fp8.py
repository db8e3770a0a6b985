"""FP8 e4m3: K and V in one byte a number, with a scale for each layer, side and KV head.

    number = code * scale,   code in {0, +-2**-9 ... +-448}

Writing saturates: what is beyond +-448 scales becomes +-448 scales, never NaN or infinity. A code
goes through any wider dtype and back unchanged, so a copy that was kept wider loses nothing.

torch's own cast from e4m3 takes one number at a time on CPU; `widen` moves bits instead (an e4m3
number is a float16 with other exponents) and is some nine times as fast.
"""

from __future__ import annotations

import torch
from blake3 import blake3

FP8 = torch.float8_e4m3fn

LARGEST = 448.0

UNIT = 256.0
"""`widen` gives codes divided by this (float16's exponents begin 8 below e4m3's)."""

_SIGN_AND_REST = -0x4001
"""All bits of an int16 but the second highest, where sign extension left a copy of the sign."""


def encode(rows: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """K and V `[2, n, kv_heads, head_dim]`, finite, as e4m3 codes of `scales [2, kv_heads]`."""
    scaled = rows.to(torch.float32) / scales[:, None, :, None]
    return scaled.clamp_(-LARGEST, LARGEST).to(FP8)


def decode(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """What `encode` kept, float32 `[2, n, kv_heads, head_dim]`."""
    out = torch.empty(codes.shape, dtype=torch.float32, device=codes.device)
    return widen(codes, out).mul_(scales[:, None, :, None] * UNIT)


def widen(codes: torch.Tensor, out: torch.Tensor, bits: torch.Tensor | None = None) -> torch.Tensor:
    """Write codes / `UNIT` to `out` (float32, or any float that holds them) and return it. Exact.

    `bits`: int16 scratch of the same shape. The two NaN codes, which `encode` never makes, come out
    as +-480.
    """
    if bits is None:
        bits = torch.empty(codes.shape, dtype=torch.int16, device=codes.device)
    # int8 -> int16 copies the sign into the upper byte: sssssssss|eeee|mmm. Shifted by 7 that is
    # s|s|eeee|mmm|0000000: a float16 once its second bit, the highest of its exponent, is cleared.
    bits.copy_(codes.view(torch.int8))
    bits.bitwise_left_shift_(7).bitwise_and_(_SIGN_AND_REST)
    return out.copy_(bits.view(torch.float16))


def digest(scales: torch.Tensor) -> str:
    """Scales as 32 hex characters."""
    shape = ",".join(map(str, scales.shape))
    raw = scales.to(dtype=torch.float32, device="cpu").contiguous().numpy().tobytes()
    return blake3(shape.encode() + raw).hexdigest()[:32]
