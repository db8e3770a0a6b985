"""Write the K and V of new tokens into their slots of one pool layer.

Signature: `k, v [rows, kv_heads, head_dim]` (float32, float16, bfloat16; rows and heads may be
strided), `kv [2, slots, kv_heads, head_dim]` (those, or float8_e4m3fn with `scales` float32
`[2, kv_heads]`), `slots [rows]` int32 or int64, each slot once; a row with a negative slot is padding
and is not written. A number that the pool's dtype does not hold saturates; NaN stays NaN. Rounding is
to nearest even, so that a prefix has the same bytes whoever wrote it.
"""

from __future__ import annotations

import torch

from agentkv.kernels.device import runs_triton
from agentkv.kernels.jit import jit, power_of_two, tl

LARGEST_FP8 = 448.0


def kv_store(
    k: torch.Tensor,
    v: torch.Tensor,
    kv: torch.Tensor,
    slots: torch.Tensor,
    scales: torch.Tensor | None = None,
) -> None:
    """Raises ValueError when an FP8 pool comes without scales, or shapes differ."""
    fp8 = kv.dtype == torch.float8_e4m3fn
    if fp8 and scales is None:
        raise ValueError("a pool of FP8 codes needs scales")
    if k.shape != v.shape or k.shape[1:] != kv.shape[2:] or k.shape[0] != slots.shape[0]:
        raise ValueError(f"K {list(k.shape)}, V {list(v.shape)} do not fit {list(kv.shape)}")
    if not runs_triton(k):
        kv_store_reference(k, v, kv, slots, scales)
        return
    rows, heads, dim = k.shape
    block_h = max(1, min(power_of_two(heads), 4096 // power_of_two(dim)))
    target = kv.view(torch.uint8) if fp8 else kv
    if rows:
        _kv_store[(rows, -(-heads // block_h), 2)](
            k, v, target, slots, scales if fp8 else None, heads,
            *k.stride()[:2], *v.stride()[:2], *kv.stride()[:3], torch.finfo(kv.dtype).max,
            D=dim, BLOCK_D=power_of_two(dim), BLOCK_H=block_h, FP8=fp8, num_warps=4,
        )  # fmt: skip


def kv_store_reference(
    k: torch.Tensor,
    v: torch.Tensor,
    kv: torch.Tensor,
    slots: torch.Tensor,
    scales: torch.Tensor | None = None,
) -> None:
    """The reference."""
    real = slots >= 0
    both = torch.stack((k, v))[:, real].float()
    target = kv
    if kv.dtype == torch.float8_e4m3fn:
        assert scales is not None
        both = both / scales[:, None, :, None]
        target = kv.view(torch.uint8)
    most = torch.finfo(kv.dtype).max
    narrow = both.clamp(-most, most).to(kv.dtype)
    target.index_copy_(1, slots[real].long(), narrow.view(target.dtype))


@jit
def encode(x):
    """e4m3 codes of float32 numbers, in integers: the hardware of sm_80 has no such cast."""
    bits = x.to(tl.uint32, bitcast=True)
    size = tl.minimum(tl.abs(x), 448.0)
    raw = size.to(tl.uint32, bitcast=True)
    # Exponent and the upper three bits of the mantissa, rounded to nearest even and rebased.
    normal = ((raw + 0x7FFFF + ((raw >> 20) & 1)) >> 20) - 960
    # Below 2^-6 codes are multiples of 2^-9, the last place of 2^14: adding that rounds.
    small = (size + 16384.0).to(tl.uint32, bitcast=True) - 0x46800000
    code = tl.where(raw >= 0x3C800000, normal, small)
    code = tl.where(x != x, 0x7F, code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@jit(unaligned="Slots Scales")
def _kv_store(
    K, V, KV, Slots, Scales, heads, krow, khead, vrow, vhead, side_stride, slot_stride, head_stride,
    most, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_H: tl.constexpr, FP8: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)[:, None]
    side = tl.program_id(2)
    slot = tl.load(Slots + row).to(tl.int64)
    if slot >= 0:
        lane = tl.arange(0, BLOCK_D)[None, :]
        mask = (head < heads) & (lane < D)
        if side == 0:
            x = tl.load(K + row * krow + head * khead + lane, mask=mask, other=0.0)
        else:
            x = tl.load(V + row * vrow + head * vhead + lane, mask=mask, other=0.0)
        at = KV + side.to(tl.int64) * side_stride + slot * slot_stride + head * head_stride + lane
        wide = x.to(tl.float32)
        if FP8:
            scale = tl.load(Scales + side * heads + head, mask=head < heads, other=1.0)
            tl.store(at, encode(tl.div_rn(wide, scale + tl.zeros_like(wide))), mask=mask)
        else:
            bounded = tl.where(wide > most, most, tl.where(wide < -most, -most, wide))
            tl.store(at, bounded.to(KV.dtype.element_ty), mask=mask)
