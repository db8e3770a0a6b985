"""K/V between a device's pool and the host's: the right bytes, and nothing touched too early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.kv import copies as module
from agentkv.engine.kv.copies import Copies, StreamCopies
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.types import IntArray
from agentkv.kernels.fp8 import FP8
from tests.engine.run.fake_device import FakeDevice, Race

LAYERS, HEADS, DIM = 3, 2, 8
SCALES = torch.tensor([[[0.5, 0.25], [0.125, 1.0]]]).repeat(LAYERS, 1, 1)


def pool(slots: int, dtype: torch.dtype, zeros: Any = None) -> KVPool:
    return KVPool(
        layers=LAYERS, slots=slots, kv_heads=HEADS, head_dim=DIM, dtype=dtype, scales=SCALES, zeros=zeros
    )  # fmt: skip


def fill(target: KVPool, seed: int) -> None:
    make = torch.Generator().manual_seed(seed)
    for layer in range(LAYERS):
        rows = torch.randn(2, target.slots, HEADS, DIM, generator=make)
        target.put(layer, slice(0, target.slots), rows)


def content(of: KVPool, slots: IntArray) -> torch.Tensor:
    index = torch.from_numpy(slots.astype(np.int64))
    return torch.stack([of.take(i, index).float() for i in range(LAYERS)])


def both(
    slots: int, below: torch.dtype, above: torch.dtype
) -> tuple[FakeDevice, StreamCopies, Copies]:
    """Copies by streams, and plain ones between equal pools."""
    device = FakeDevice()
    made = StreamCopies(device, pool(slots, above), pool(slots, below, device.pinned))
    plain = Copies(pool(slots, above), pool(slots, below))
    for one in (made, plain):
        fill(one.device, 1)
        fill(one.host, 2)
    return device, made, plain


RUN = np.arange(7, 27, dtype=np.int32)
SPREAD = np.random.default_rng(0).permutation(60)[:20].astype(np.int32)


@pytest.mark.parametrize("above", [torch.float32, torch.bfloat16, FP8])
@pytest.mark.parametrize("below", [torch.float32, torch.bfloat16, FP8])
@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize(
    ("one", "two"), [(RUN, SPREAD), (SPREAD, RUN), (SPREAD, SPREAD[::-1].copy())]
)
def test_there_and_back(
    below: torch.dtype,
    above: torch.dtype,
    at_once: int,
    one: IntArray,
    two: IntArray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device, made, plain = both(60, below, above)
    monkeypatch.setattr(module, "BUFFER_BYTES", at_once * 2 * HEADS * DIM * above.itemsize)
    for copies in (made, plain):
        copies.down(one, two, copies.mark())
    assert torch.equal(content(made.host, two), content(plain.host, two))
    every = np.arange(60, dtype=np.int32)
    assert torch.equal(content(made.host, every), content(plain.host, every))
    for copies in (made, plain):
        copies.up(two, one[::-1].copy(), copies.mark())
    assert torch.equal(content(made.device, every), content(plain.device, every))
    device.check()
    assert not device._under_way


@pytest.mark.parametrize("kind", [torch.float32, FP8])
def test_what_comes_from_disk(kind: torch.dtype) -> None:
    device, made, plain = both(60, kind, kind)
    layers = [made.host.take(i, slice(10, 30)).clone() for i in range(LAYERS)]
    for copies in (made, plain):
        copies.put(layers, SPREAD, copies.mark())
    every = np.arange(60, dtype=np.int32)
    assert torch.equal(content(made.device, every), content(plain.device, every))
    device.check()


def test_one_run_of_pinned_memory_needs_no_buffer() -> None:
    device, made, _ = both(60, torch.float32, torch.float32)
    pins = len(device._pins)
    made.down(SPREAD, RUN, made.mark())
    made.up(RUN, SPREAD, made.mark())
    assert len(device._pins) == pins
    made.down(RUN, SPREAD, made.mark())
    assert len(device._pins) > pins


def test_nothing_is_copied_before_what_was_computed() -> None:
    device, made, _ = both(60, torch.float32, torch.float32)
    for work in (
        lambda: made.down(RUN, SPREAD),
        lambda: made.up(SPREAD, RUN),
        lambda: made.put([torch.zeros(2, 20, HEADS, DIM)] * LAYERS, RUN),
    ):
        with pytest.raises(Race):
            work()
    assert not any(entry.startswith("copies: up") for entry in device.log)


def test_it_has_arrived_when_it_returns() -> None:
    device, made, _ = both(60, torch.float32, torch.float32)
    made.down(SPREAD, RUN, made.mark())
    assert device.log[-1] == "host waits for copies"
    assert not device._under_way


def test_buffers_that_are_taken_too_early_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the tests above can fail."""
    _, made, _ = both(60, torch.bfloat16, torch.float32)
    monkeypatch.setattr(module._Buffers, "_finish", lambda self, at: None)
    with pytest.raises(Race):
        made.up(SPREAD, RUN, made.mark())
