"""What the FlashInfer backend asks of FlashInfer: tables, windows, scales, one plan a step.

The library itself needs a GPU. Its stand-in here has the two wrappers' documented signatures, checks
what it is given as they would, and answers by this project's reference.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.attention import flashinfer as backend
from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.flashinfer import FlashInferAttention
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.run.staging import Staging
from agentkv.kernels.paged import Paged
from agentkv.kernels.paged_attention import attention_reference
from tests.engine.run.fake_device import FakeDevice

HEADS, KV_HEADS, DIM = 4, 2, 64


@dataclass
class Wrapper:
    """One of FlashInfer's wrappers: `rules` and `tables` of its last plan."""

    kind: str
    options: dict[str, Any]
    plans: int = 0
    tables: Any = None
    rules: dict[str, Any] = field(default_factory=dict)

    def plan(self, *arguments: Any, causal: bool = False, **rules: Any) -> None:
        *tables, heads, kv_heads, dim, page = arguments
        assert (heads, kv_heads, dim) == (HEADS, KV_HEADS, DIM)
        assert all(t.dtype == torch.int32 for t in tables)
        if self.kind == "decode":
            tables.insert(0, torch.arange(len(tables[0]), dtype=torch.int32))
        else:
            assert causal
        self.plans += 1
        self.rules = rules
        self.tables = Paged(tables[0], tables[1], tables[2], tables[3], page)

    def run(self, q: torch.Tensor, pool: Any, *, out: torch.Tensor) -> torch.Tensor:
        keys, values = pool
        assert keys.shape[1:] == (self.tables.page_size, KV_HEADS, DIM)
        assert (q.dtype, keys.dtype) == (self.rules["q_data_type"], self.rules["kv_data_type"])
        left = self.rules["window_left"]
        kv = torch.stack((keys.flatten(0, 1).float(), values.flatten(0, 1).float()))
        result, _ = attention_reference(
            q.float(), kv, self.tables, scale=self.rules["sm_scale"],
            window=None if left < 0 else left + 1, softcap=self.rules["logits_soft_cap"] or None,
        )  # fmt: skip
        return out.copy_(result)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Wrapper]:
    """The wrappers that a test's backend made."""
    wrappers: list[Wrapper] = []

    def maker(kind: str) -> Any:
        def make(workspace: torch.Tensor, layout: str, **options: Any) -> Wrapper:
            assert workspace.dtype == torch.uint8 and layout == "NHD"
            wrappers.append(Wrapper(kind, options))
            return wrappers[-1]

        return make

    module = SimpleNamespace(
        BatchDecodeWithPagedKVCacheWrapper=maker("decode"),
        BatchPrefillWithPagedKVCacheWrapper=maker("extend"),
    )
    monkeypatch.setitem(sys.modules, "flashinfer", module)
    monkeypatch.setattr(backend, "WORKSPACE", 64)
    return wrappers


class Batch:
    """Sequences of `(cached, new)` tokens over a random pool."""

    def __init__(self, sizes: list[tuple[int, int]], page: int, dtype: torch.dtype) -> None:
        rng = np.random.default_rng(3)
        lens = [a + b for a, b in sizes]
        pages = [-(-n // page) for n in lens]
        order = np.split(rng.permutation(sum(pages)), np.cumsum(pages)[:-1])
        self.slots = np.concatenate(
            [
                (p[:, None] * page + np.arange(page)).ravel()[:n]
                for p, n in zip(order, lens, strict=True)
            ]
        ).astype(np.int32)
        self.qo = np.cumsum([0, *(b for _, b in sizes)]).astype(np.int32)
        self.indptr = np.cumsum([0, *lens]).astype(np.int32)
        torch.manual_seed(0)
        # A few slots more than whole pages: pools have padding behind their last page.
        self.kv = torch.randn(2, sum(pages) * page + 5, KV_HEADS, DIM).to(dtype)
        self.q = torch.randn(int(self.qo[-1]) + 3, HEADS, DIM, dtype=torch.bfloat16)

    def expected(self, spec: AttentionSpec, scales: torch.Tensor | None = None) -> torch.Tensor:
        qo, indptr, slots = map(torch.from_numpy, (self.qo, self.indptr, self.slots))
        return attention_reference(
            self.q[: self.qo[-1]].float(), self.kv if scales is not None else self.kv.float(),
            Paged(qo, indptr, slots), scale=spec.scale, window=spec.sliding_window, softcap=spec.softcap,
            scales=scales,
        )[0].flatten(1)  # fmt: skip


def spec_of(**rules: Any) -> AttentionSpec:
    return AttentionSpec(num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, scale=0.2, **rules)


def attend(batch: Batch, page: int, spec: AttentionSpec, **more: Any) -> torch.Tensor:
    attention = FlashInferAttention(page, device="cpu")
    plan = attention.plan(batch.qo, batch.indptr, batch.slots)
    return attention.run(batch.q, batch.kv, plan, spec, **more)


SIZES = {
    "decoding": [(0, 1), (15, 1), (16, 1), (40, 1)],
    "prompts": [(0, 7), (33, 2), (16, 16)],
    "mixed": [(20, 1), (5, 1), (0, 9), (31, 3)],
}


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=list(SIZES))
@pytest.mark.parametrize("rules", [{}, {"sliding_window": 8}, {"softcap": 5.0}], ids=str)
def test_answers(
    made: list[Wrapper], page: int, sizes: list[tuple[int, int]], rules: dict[str, Any]
) -> None:
    batch, spec = Batch(sizes, page, torch.bfloat16), spec_of(**rules)
    got = attend(batch, page, spec)
    rows = int(batch.qo[-1])
    assert got.shape == (rows + 3, HEADS * DIM) and got.dtype == torch.bfloat16
    assert torch.allclose(got[:rows].float(), batch.expected(spec), atol=2e-2)
    assert not got[rows:].any()


def test_scales_of_each_head_are_exact(made: list[Wrapper]) -> None:
    batch, spec = Batch(SIZES["mixed"], 16, torch.float8_e4m3fn), spec_of()
    scales = torch.tensor([[0.5, 4.0], [2.0, 0.125]])
    got = attend(batch, 16, spec, scales=scales)
    expected = batch.expected(spec, scales)
    assert torch.allclose(got[: len(expected)].float(), expected, atol=2e-2, rtol=2e-2)
    assert {w.rules["kv_data_type"] for w in made} == {torch.float8_e4m3fn}


def test_one_plan_a_step_for_all_layers_of_a_shape(made: list[Wrapper]) -> None:
    batch = Batch(SIZES["mixed"], 16, torch.bfloat16)
    attention = FlashInferAttention(16, device="cpu")
    full, window = spec_of(), spec_of(sliding_window=8)
    for _ in range(2):
        plan = attention.plan(batch.qo, batch.indptr, batch.slots)
        for layer in (full, window, full, window):
            attention.run(batch.q, batch.kv, plan, layer)
    assert len(made) == 4  # decode and extend, for each of two shapes
    assert [w.plans for w in made] == [2] * 4
    assert {w.rules["window_left"] for w in made} == {-1, 7}


def test_on_a_devices_runner(made: list[Wrapper]) -> None:
    """The runner sends the tables to the device itself, in two halves of a plan."""
    device = FakeDevice()
    batch, spec = Batch(SIZES["mixed"], 16, torch.bfloat16), spec_of()
    attention = FlashInferAttention(16, device="cpu")
    layout = attention.layout(batch.qo, batch.indptr, batch.slots)
    plan = attention.place(layout, Staging(device).send(layout.tables))
    rows = int(batch.qo[-1])
    got = attention.run(batch.q, batch.kv, plan, spec)[:rows]
    assert torch.allclose(got.float(), batch.expected(spec), atol=2e-2)
    assert device.log.count("compute: up") == 1


def test_groups_of_query_heads_take_tensor_cores(made: list[Wrapper]) -> None:
    attend(Batch(SIZES["decoding"], 1, torch.bfloat16), 1, spec_of())
    assert made[0].options == {"use_tensor_cores": False}  # two heads a group are few


def test_what_it_has_no_kernel_for(made: list[Wrapper]) -> None:
    batch = Batch(SIZES["decoding"], 1, torch.bfloat16)
    attention = FlashInferAttention(1, device="cpu")
    plan = attention.plan(batch.qo, batch.indptr, batch.slots)
    with pytest.raises(InvalidRequest, match="dtype='bfloat16'"):
        attention.run(batch.q.float(), batch.kv, plan, spec_of())
    odd = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=80, scale=1.0)
    with pytest.raises(InvalidRequest, match="attention='triton'"):
        attention.run(batch.q[..., :32], batch.kv, plan, odd)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(InvalidRequest, match="pip install flashinfer-python"):
        FlashInferAttention(16, device="cpu")
