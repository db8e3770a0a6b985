"""FP8 K/V: codes, scales, saturation, and copies between pools of different dtypes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agentkv.engine.kv.copies import copy_slots
from agentkv.engine.kv.pool import SLOT_PAD, KVPool, dtype_name, narrower
from agentkv.kernels.fp8 import FP8, UNIT, decode, digest, encode, widen

LAYERS, HEADS, DIM = 2, 3, 8
CODES = torch.arange(256, dtype=torch.uint8).view(FP8)
NUMBERS = CODES[[c for c in range(256) if c & 0x7F != 0x7F]]


def scales(seed: int = 0, *, odd: bool = False) -> torch.Tensor:
    maker = torch.Generator().manual_seed(seed)
    found = 2.0 ** torch.randint(-9, 4, (LAYERS, 2, HEADS), generator=maker)
    return found * 0.731 if odd else found


def pool(dtype: torch.dtype, of: torch.Tensor | None = None, slots: int = 64) -> KVPool:
    return KVPool(layers=LAYERS, slots=slots, kv_heads=HEADS, head_dim=DIM, dtype=dtype, scales=of)


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(2, count, HEADS, DIM, generator=torch.Generator().manual_seed(seed))


def test_every_code_widens_to_what_torch_says() -> None:
    got = widen(NUMBERS, torch.empty(len(NUMBERS))) * UNIT
    assert torch.equal(got, NUMBERS.float())
    assert torch.equal(torch.signbit(got), torch.signbit(NUMBERS.float()))  # -0 too
    assert bool(torch.isfinite(widen(CODES, torch.empty(256))).all())


def test_numbers_beyond_the_largest_saturate() -> None:
    one = torch.tensor([[1.0, 0.5, 0.25], [2.0, 1.0, 1.0]])
    huge = torch.tensor([449.0, 464.0, 465.0, 1e4, 3e38, -3e38, -500.0, 448.0])
    got = decode(encode(huge.expand(2, 1, HEADS, DIM), one), one)
    for side in range(2):
        for head in range(HEADS):
            limit = 448 * float(one[side, head])
            expected = huge.clamp(-limit, limit)
            assert bool((got[side, 0, head].abs() <= limit).all())
            assert torch.allclose(got[side, 0, head], expected, rtol=2**-4)
    assert bool(torch.isfinite(got).all())


@pytest.mark.parametrize("odd", [False, True], ids=["powers of two", "any scale"])
@pytest.mark.parametrize("between", [torch.float32, torch.bfloat16])
def test_codes_survive_a_wider_dtype(between: torch.dtype, odd: bool) -> None:
    given = scales(3, odd=odd)[0]
    codes = NUMBERS.view(torch.uint8).repeat(HEADS * 2 * 4)[: 2 * 4 * HEADS * DIM * 5].view(FP8)
    codes = codes.view(2, -1, HEADS, DIM)
    again = encode(decode(codes, given).to(between), given)
    # -0 and 0 are the same number.
    assert torch.equal(again.float(), codes.float())


def test_a_loud_head_does_not_spoil_its_neighbours() -> None:
    quiet = rows(200)
    loud = quiet.clone()
    loud[:, :, 1] *= 100
    each = torch.full((2, HEADS), 2.0**-5)
    own = each.clone()
    own[:, 1] *= 128

    def error(x: torch.Tensor, given: torch.Tensor, head: int) -> float:
        got = decode(encode(x, given), given)
        return float((got - x)[:, :, head].norm() / x[:, :, head].norm())

    for head in (0, 2):
        assert error(loud, own, head) == error(quiet, each, head) < 0.03
    assert error(loud, own, 1) < 0.03
    # With the neighbours' scale it would be clipped.
    assert error(loud, each, 1) > 0.5


@pytest.mark.parametrize("run", [True, False])
def test_a_pool_keeps_codes_and_gives_them_back(run: bool) -> None:
    given = scales(1)
    small = pool(FP8, given)
    where = slice(5, 15) if run else torch.tensor([9, 3, 60, 1, 0, 33, 34, 35, 2, 40])
    values = rows(10)
    small.put(1, where, values)
    assert small.layer(1).dtype == FP8 and small.layer(1).shape == (2, 64 + SLOT_PAD, HEADS, DIM)
    got = small.take(1, where)
    assert got.dtype == FP8
    assert torch.equal(got.float(), encode(values, given[1]).float())
    assert float(small.layer(0).float().abs().sum()) == 0.0
    assert small.nbytes == LAYERS * 2 * (64 + SLOT_PAD) * HEADS * DIM
    assert small.token_bytes * 2 == pool(torch.bfloat16).token_bytes
    assert small.scales_of(1) is not None and pool(torch.float32, given).scales_of(1) is None


@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16])
def test_copies_between_pools_convert_once(wide: torch.dtype) -> None:
    given = scales(2)
    device, host, back = pool(wide, given), pool(FP8, given), pool(wide, given)
    for layer in range(LAYERS):
        device.put(layer, slice(0, 20), rows(20, layer) * 5)
    there = np.array([40, 3, 4, 5, 9, 11], dtype=np.int32)
    copy_slots(device, np.arange(6, dtype=np.int32), host, there)
    copy_slots(host, there, back, np.arange(10, 16, dtype=np.int32))
    for layer in range(LAYERS):
        was, came = device.layer(layer)[:, :6].float(), back.layer(layer)[:, 10:16].float()
        # Half a step of the last of three fraction bits; below the least normal code, of that.
        limit = was.abs() / 15.9 + given[layer][:, None, :, None] * 2.0**-9
        saturated = 448 * given[layer][:, None, :, None]
        assert bool((((came - was).abs() <= limit) | (was.abs() > saturated)).all())
        assert not torch.equal(came, was)
    # What came back once goes down and comes back as it is.
    copy_slots(back, np.arange(10, 16, dtype=np.int32), host, there)
    copy_slots(host, there, back, np.arange(30, 36, dtype=np.int32))
    for layer in range(LAYERS):
        assert torch.equal(back.layer(layer)[:, 30:36], back.layer(layer)[:, 10:16])


def test_a_smaller_float_saturates_too() -> None:
    narrow = pool(torch.bfloat16)
    narrow.put(0, slice(0, 1), torch.full((2, 1, HEADS, DIM), torch.finfo(torch.float32).max))
    assert bool(torch.isfinite(narrow.layer(0)[:, :1]).all())
    assert float(narrow.layer(0)[0, 0, 0, 0]) == torch.finfo(torch.bfloat16).max


def test_scales_are_asked_for() -> None:
    with pytest.raises(ValueError, match="needs scales"):
        pool(FP8)
    with pytest.raises(ValueError, match=r"scales must be \[2, 2, 3\]"):
        pool(FP8, torch.ones(2, 3))
    with pytest.raises(ValueError, match="does not know their scales"):
        pool(torch.float32).put(0, slice(0, 4), encode(rows(4), scales()[0]))


def test_names_order_and_digests() -> None:
    assert dtype_name(FP8) == "fp8_e4m3" and dtype_name(torch.bfloat16) == "bfloat16"
    assert narrower(FP8, torch.bfloat16) and narrower(torch.bfloat16, torch.float32)
    assert not narrower(torch.float32, FP8) and not narrower(FP8, FP8)
    one = scales(1)
    assert digest(one) == digest(one.clone())
    other = one.clone()
    other[1, 0, 2] *= 2
    assert len({digest(one), digest(other), digest(one.view(LAYERS, 1, 2 * HEADS))}) == 3
