"""When K and V of a pool are read in boxes, and how its descriptor describes it."""

from __future__ import annotations

import sys

import pytest
import torch

from agentkv.kernels.boxes import boxes_of, has_boxes
from agentkv.kernels.fp8 import FP8
from agentkv.kernels.tuning import Config

BOXED = Config(16, 64, 4, 3, tma=True)
HALF = torch.bfloat16


def pool(dtype: torch.dtype = HALF, dim: int = 64) -> torch.Tensor:
    return torch.zeros((2, 128, 3, dim), dtype=torch.uint8).to(dtype)


def test_boxes_are_there_from_sm_90_on() -> None:
    assert all(map(has_boxes, ("sm_90", "sm_100", "sm_103", "sm_120", "interpreter")))
    assert not any(map(has_boxes, ("sm_80", "sm_89", "gfx942", "gfx950")))


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "gfx942"])
def test_others_are_refused(arch: str) -> None:
    with pytest.raises(ValueError, match=f"sm_90 or newer.*{arch}"):
        boxes_of(pool(), 16, BOXED, arch, 0)
    assert boxes_of(pool(), 16, Config(16, 64, 4, 3), arch, 0) is None


def test_what_no_box_fits_is_read_by_pointers() -> None:
    assert boxes_of(pool(), 1, BOXED, "sm_90", 0) is None
    assert boxes_of(pool(), 8, BOXED, "sm_90", 0) is None
    assert boxes_of(pool(dim=20), 16, BOXED, "sm_90", 0) is None  # heads begin at 40 bytes
    assert boxes_of(pool(FP8, dim=72), 16, BOXED, "sm_90", 1) is None
    odd = torch.zeros(2 * 128 * 3 * 64 + 1, dtype=HALF)[1:].view(2, 128, 3, 64)
    assert boxes_of(odd, 16, BOXED, "sm_90", 0) is None


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is there for Linux only")
@pytest.mark.parametrize(
    ("page", "dim", "dtype", "block"),
    [
        (16, 128, HALF, [1, 1, 16, 128]),
        (32, 80, HALF, [1, 1, 32, 128]),  # padded, with zeros
        (128, 96, FP8, [1, 1, 64, 128]),  # half a page
    ],
)
def test_a_box_is_a_page_of_a_head(
    page: int, dim: int, dtype: torch.dtype, block: list[int]
) -> None:
    kv = pool(dtype, dim)
    boxes = boxes_of(kv, page, BOXED, "sm_90", 0)
    assert boxes.block_shape == block
    assert boxes.shape == [2, 3, 128, dim]
    assert boxes.strides == [128 * 3 * dim, dim, 3 * dim, 1]
    assert boxes.base.data_ptr() == kv.data_ptr()
