"""The Triton backend's plans: pages, parts of a batch, shared prefixes. Kernels answer by their torch
references here; the same comparison runs under the interpreter in tests/kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.attention import triton as backend
from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.layout import Host, Shape
from agentkv.engine.attention.triton import TritonAttention
from agentkv.engine.types import IntArray
from agentkv.kernels.paged_attention import paged_attention

PAGES = (1, 16)


class Batch:
    """Sequences of `(cached, new)` tokens over a random pool; the first `shared` tokens of all are in
    the same slots."""

    def __init__(
        self, sizes: list[tuple[int, int]], page: int, *, shared: int = 0, heads: int = 4,
        kv_heads: int = 2, dim: int = 16, seed: int = 0,
    ) -> None:  # fmt: skip
        rng = np.random.default_rng(seed)
        lens = [a + b for a, b in sizes]
        pages = [-(-n // page) for n in lens]
        first = rng.permutation(sum(pages) + 7).astype(np.int32)
        common, tables, at = first[: shared // page], [], shared // page
        for count in pages:
            own = count - len(common)
            tables.append(np.concatenate([common, first[at : at + own]]))
            at += own
        self.slots = np.concatenate(
            [
                (t[:, None] * page + np.arange(page)).ravel()[:n]
                for t, n in zip(tables, lens, strict=True)
            ]
        ).astype(np.int32)
        self.qo: IntArray = np.cumsum([0, *(b for _, b in sizes)]).astype(np.int32)
        self.kv_indptr: IntArray = np.cumsum([0, *lens]).astype(np.int32)
        torch.manual_seed(seed)
        total = (len(first) + 1) * page
        self.kv = torch.randn(2, total, kv_heads, dim)
        self.q = torch.randn(int(self.qo[-1]) + 3, heads, dim)  # three rows of padding

    def expected(self, spec: AttentionSpec) -> torch.Tensor:
        rows = int(self.qo[-1])
        return paged_attention(
            self.q[:rows], self.kv, *map(torch.from_numpy, (self.qo, self.kv_indptr, self.slots)),
            scale=spec.scale, sliding_window=spec.sliding_window, softcap=spec.softcap,
        ).flatten(1)  # fmt: skip

    def by(self, attention: TritonAttention, spec: AttentionSpec) -> torch.Tensor:
        plan = attention.plan(self.qo, self.kv_indptr, self.slots)
        return attention.run(self.q, self.kv, plan, spec)


def spec(heads: int = 4, kv_heads: int = 2, dim: int = 16, **more: float) -> AttentionSpec:
    return AttentionSpec(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=dim,
        scale=dim**-0.5,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    "sizes",
    [
        [(0, 1)],
        [(0, 15), (0, 16), (0, 17), (0, 32)],
        [(15, 1), (16, 1), (17, 1)],
        [(31, 1), (40, 1), (0, 20), (33, 5)],
        [(0, 5), (20, 1), (7, 1)],
    ],
)
@pytest.mark.parametrize("more", [{}, {"sliding_window": 9}, {"softcap": 20.0}])
def test_every_kind_of_batch(page: int, sizes: list[tuple[int, int]], more: dict[str, Any]) -> None:
    batch, rule = Batch(sizes, page), spec(**more)
    for deterministic in (False, True):
        got = batch.by(TritonAttention(page, deterministic=deterministic), rule)
        torch.testing.assert_close(got[: batch.qo[-1]], batch.expected(rule), atol=2e-6, rtol=2e-5)
        assert not got[batch.qo[-1] :].any()


@pytest.mark.parametrize("page", PAGES)
def test_a_shared_prefix_is_read_once_when_that_is_worth_it(page: int) -> None:
    batch = Batch([(300, 1), (310, 1), (272, 1)], page, shared=256)
    flat, cascade = TritonAttention(page, cascade=False), TritonAttention(page)
    for _ in range(2):
        got = batch.by(cascade, spec())
    torch.testing.assert_close(got[:3], batch.expected(spec()), atol=2e-6, rtol=2e-5)
    torch.testing.assert_close(batch.by(flat, spec()), got, atol=2e-6, rtol=2e-5)
    assert (cascade.cascades, flat.cascades) == (2, 0)
    plan = cascade.plan(batch.qo, batch.kv_indptr, batch.slots)
    assert plan.shared is not None and plan.shared.shape[0] * page == 256
    assert plan.longest == 311 - 256


@pytest.mark.parametrize("page", PAGES)
def test_a_shared_prefix_beside_prompts(page: int) -> None:
    sizes = [(300, 1), (310, 1), (272, 1), (280, 7), (256, 20)]
    batch, attention = Batch(sizes, page, shared=256), TritonAttention(page)
    got = batch.by(attention, spec())
    assert attention.cascades == 1
    torch.testing.assert_close(got[: batch.qo[-1]], batch.expected(spec()), atol=2e-6, rtol=2e-5)
    # By tables that the device has already.
    shape = Shape.of(spec(), torch.float32, torch.float32)
    layout = attention.layout(batch.qo, batch.kv_indptr, batch.slots, [shape, shape])
    plan = attention.place(layout, [torch.from_numpy(t.copy()) for t in layout.tables])
    assert set(plan.tiles) == {shape} and plan.tiles[shape].work.shape[1] == 3
    assert torch.equal(attention.run(batch.q, batch.kv, plan, spec()), got)


@pytest.mark.parametrize(
    ("sizes", "shared"),
    [
        ([(300, 1)], 256),  # nobody to share with
        ([(200, 1), (210, 1)], 192),  # too short
        ([(3000, 1), (3000, 1)], 256),  # too little of the whole
    ],
)
def test_no_cascade_where_it_does_not_pay(sizes: list[tuple[int, int]], shared: int) -> None:
    batch, attention = Batch(sizes, 16, shared=shared), TritonAttention(16)
    got = batch.by(attention, spec())
    assert attention.cascades == 0
    rows = len(sizes)
    torch.testing.assert_close(got[:rows], batch.expected(spec()), atol=2e-6, rtol=2e-5)


def test_a_prefix_that_is_all_of_a_sequence_leaves_it_a_page_of_its_own() -> None:
    slots = np.concatenate([np.arange(32), np.arange(64)]).astype(np.int32)
    rows, ends = (np.array(x, dtype=np.int32) for x in ([0, 1, 2], [0, 32, 96]))
    host = Host.of(rows, ends, slots, 16)
    assert host.shared() == 1
    rest = host.behind(1, 16)
    assert rest.pages.tolist() == [1, 1, 2, 3]
    assert rest.lens.tolist() == [16, 48]
    assert rest.indptr.tolist() == [0, 1, 4]


@pytest.mark.parametrize("page", PAGES)
def test_deterministic_rows_depend_on_their_own_sequence_only(page: int) -> None:
    """Here by the references; that the kernels keep it is checked under the interpreter."""
    sizes = [(40, 1), (0, 20), (33, 5)]
    together = Batch(sizes, page)
    attention = TritonAttention(page, deterministic=True)
    assert attention.deterministic and not attention.cascade
    assert not attention.bit_exact  # the references promise nothing
    plan = attention.plan(together.qo, together.kv_indptr, together.slots)
    assert plan.decoding == 0
    whole = attention.run(together.q, together.kv, plan, spec())
    for i in range(len(sizes)):
        a, b = together.qo[i : i + 2]
        c, d = together.kv_indptr[i : i + 2]
        alone = attention.plan(
            np.array([0, b - a], dtype=np.int32),
            np.array([0, d - c], dtype=np.int32),
            together.slots[c:d],
        )
        got = attention.run(together.q[a:b], together.kv, alone, spec())
        torch.testing.assert_close(got, whole[a:b], atol=1e-6, rtol=1e-5)


def test_the_table_of_work_is_made_once_a_shape() -> None:
    batch, attention = Batch([(0, 40)], 16), TritonAttention(16)
    plan = attention.plan(batch.qo, batch.kv_indptr, batch.slots)
    for rule in (spec(), spec(), spec(sliding_window=8)):
        attention.run(batch.q, batch.kv, plan, rule)
    assert len(plan.tiles) == 1  # a window changes nothing about it
    assert backend.SPLIT % 128 == 0
