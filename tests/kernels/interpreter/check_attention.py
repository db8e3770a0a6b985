"""extend, decode and cascade under the interpreter, against float64.

Run by tests/kernels/test_interpreted.py; by hand: TRITON_INTERPRET=1 pytest <this file>.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from agentkv.kernels import attend
from agentkv.kernels.cascade_attention import (
    cascade_attention,
    cascade_reference,
    plan_cascade,
    prefix_split,
)
from agentkv.kernels.decode_attention import decode_attention, decode_reference, max_splits
from agentkv.kernels.extend_attention import extend_attention, plan_extend
from agentkv.kernels.paged import Paged
from agentkv.kernels.paged_attention import attention_reference
from agentkv.kernels.tiles import Tiles
from tests.kernels.interpreter.cases import BF16, F32, FP8, SMALL, Batch, batch, close

EDGES = {"new": [1, 32, 5, 0, 33], "lens": [1, 32, 37, 40, 65]}
"""One token; a whole tile; a prefix and a tile's edge; a sequence at rest; a tile and one."""

SHAPES: list[dict[str, Any]] = [
    {"page": 1, "group": 1, "dim": 64},
    {"page": 16, "group": 4, "dim": 128, "q_dtype": BF16, "kv_dtype": BF16},
    {"page": 32, "group": 3, "dim": 80, "q_dtype": BF16, "kv_dtype": BF16},
    {"page": 64, "group": 8, "kv_heads": 1, "dim": 96},
    {"page": 16, "group": 3, "dim": 64, "q_dtype": BF16, "kv_dtype": FP8},
    {"page": 1, "group": 2, "dim": 64, "q_dtype": F32, "kv_dtype": FP8, "unit": 1e-3},
    {"page": 1, "group": 4, "kv_heads": 1, "dim": 256, "q_dtype": BF16, "kv_dtype": FP8, "unit": 1e3},
    {"page": 16, "group": 2, "dim": 64, "q_dtype": F32, "kv_dtype": BF16},
]  # fmt: skip

RULES: list[dict[str, Any]] = [
    {"window": 1},
    {"window": 32},
    {"window": 40, "softcap": 2.0},
    {"softcap": 30.0},
]


def name(value: Any) -> str:
    return "-".join(str(v).removeprefix("torch.") for v in value.values())


def planned(b: Batch, split: int = 0, causal: bool = True) -> Tiles:
    return plan_extend(
        b.paged.qo_indptr, b.kv_lens, heads=b.q.shape[1], kv_heads=b.kv.shape[2],
        head_dim=b.q.shape[2], q_dtype=b.q.dtype, kv_dtype=b.kv.dtype, device="cpu", split=split,
        causal=causal, config=SMALL,
    )  # fmt: skip


def extended(b: Batch, split: int = 0, **rule: Any) -> tuple[torch.Tensor, torch.Tensor]:
    tiles = planned(b, split, rule.get("causal", True))
    return extend_attention(
        b.q, b.kv, b.paged, scale=b.scale, tiles=tiles, scales=b.scales, config=SMALL, **rule
    )


def expected(b: Batch, **rule: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return attention_reference(
        b.q, b.kv, b.paged, scale=b.scale, scales=b.scales, dtype=torch.float64, **rule
    )


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_extend(shape: dict[str, Any]) -> None:
    b = batch(EDGES["new"], EDGES["lens"], **shape)
    close(extended(b), expected(b), b)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_extend_with_rules(rule: dict[str, Any]) -> None:
    b = batch([33, 3], [65, 70], page=16, group=3)
    close(extended(b, **rule), expected(b, **rule), b)


def test_extend_where_all_rows_see_all_keys() -> None:
    b = batch([5, 3], [33, 64], page=16)
    close(extended(b, causal=False), expected(b, causal=False), b)


def test_extend_plans_for_itself_and_leaves_padding_alone() -> None:
    b = batch([3, 2], [20, 2], page=16)
    padded = torch.cat((b.q, torch.full((2, *b.q.shape[1:]), torch.nan)))
    out, lse = extend_attention(padded, b.kv, b.paged, scale=b.scale)
    close((out[:5], lse[:5]), expected(b), b)
    assert (out[5:] == 0).all() and (lse[5:] == -torch.inf).all()


@pytest.mark.parametrize("rule", [{}, {"window": 150}], ids=str)
def test_extend_in_pieces(rule: dict[str, Any]) -> None:
    b = batch([3, 1, 0, 10], [300, 128, 256, 129], page=16)
    assert planned(b, split=128).parts == 3
    close(extended(b, split=128, **rule), expected(b, **rule), b)


@pytest.mark.parametrize("split", [0, 128])
def test_a_row_is_the_same_cold_warm_and_in_company(split: int) -> None:
    cold = batch([150], [150], page=1, group=2, kv_heads=1, q_dtype=BF16, kv_dtype=BF16)
    whole, whole_lse = extended(cold, split)
    for new in (1, 21, 22, 149):
        first = torch.tensor([0, new, new + 1], dtype=torch.int32)
        pages = torch.tensor([2, 152, 159], dtype=torch.int32)
        table = torch.cat((cold.paged.kv_indices, cold.paged.kv_indices[2:9]))
        q = torch.cat((cold.q[150 - new :], cold.q[:1]))
        warm = replace(cold, q=q, paged=Paged(first, pages, table), kv_lens=[150, 7])
        out, lse = extended(warm, split)
        assert torch.equal(out[:new], whole[150 - new :])
        assert torch.equal(lse[:new], whole_lse[150 - new :])


@pytest.mark.parametrize("native", [False, True])
def test_both_ways_of_widening_fp8(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attend, "native_fp8", lambda arch: native)
    b = batch([5, 1], [37, 20], page=16, q_dtype=BF16, kv_dtype=FP8, unit=0.05)
    close(extended(b, softcap=20.0), expected(b, softcap=20.0), b)


def test_rows_beyond_the_range_of_int32() -> None:
    # Untouched memory costs nothing: only the pages that are read are there.
    kv = torch.empty((2, 17_000_000, 2, 64), dtype=torch.uint8)
    slots = torch.tensor([16_999_990, 16_800_000, 5])
    kv[:, slots] = torch.randint(0, 120, (2, 3, 2, 64), dtype=torch.uint8)
    one, all_three = (torch.tensor([0, n], dtype=torch.int32) for n in (1, 3))
    paged = Paged(one, all_three, slots.int())
    b = Batch(torch.randn(1, 4, 64), kv.view(FP8), paged, [3], torch.ones(2, 2), 0.01)
    close(extended(b), expected(b), b)


def decoded(b: Batch, most: int | None = None, **rule: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return decode_attention(
        b.q, b.kv, b.paged, scale=b.scale, scales=b.scales, max_kv_len=most, config=SMALL, **rule
    )


def decode_expected(b: Batch, **rule: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return decode_reference(
        b.q, b.kv, b.paged, scale=b.scale, scales=b.scales, dtype=torch.float64, **rule
    )


ONE_EACH = {"new": [1] * 6, "lens": [1, 31, 32, 0, 129, 200]}
"""In pieces of 32 at least and 4 at most: one token, edges of a piece, none, four pieces, longer ones."""


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_decode(shape: dict[str, Any]) -> None:
    b = batch(ONE_EACH["new"], ONE_EACH["lens"], **shape)
    close(decoded(b), decode_expected(b), b)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_decode_with_rules(rule: dict[str, Any]) -> None:
    b = batch([1] * 4, [1, 40, 65, 130], page=16, group=3)
    close(decoded(b, **rule), decode_expected(b, **rule), b)


def test_decode_in_one_piece_and_for_more_than_sixteen_heads() -> None:
    b = batch([1, 1], [5, 30], group=20, kv_heads=1)
    close(decoded(b, most=32), decode_expected(b), b)
    assert max_splits(32, None, SMALL) == 1 and max_splits(33, None, SMALL) == 2


def test_a_decoded_row_is_the_same_alone_and_in_company() -> None:
    b = batch([1] * 4, [20, 33, 129, 500], page=1, q_dtype=BF16, kv_dtype=BF16)
    together = decoded(b)
    for i in range(4):
        ends = b.paged.kv_indptr[i : i + 2]
        paged = Paged(torch.tensor([0, 1], dtype=torch.int32), ends, b.paged.kv_indices)
        alone = decoded(replace(b, q=b.q[i : i + 1], paged=paged), most=1000 if i % 2 else None)
        assert torch.equal(alone[0][0], together[0][i])
        assert torch.equal(alone[1][0], together[1][i])


@pytest.mark.parametrize("rule", [{}, {"window": 50, "softcap": 10.0}], ids=str)
@pytest.mark.parametrize("by", ["decode", "extend"])
@pytest.mark.parametrize(
    "shape",
    [
        {"page": 16, "group": 3, "dim": 64, "q_dtype": BF16, "kv_dtype": BF16},
        {"page": 1, "group": 2, "dim": 64, "q_dtype": BF16, "kv_dtype": FP8, "unit": 0.1},
    ],
    ids=name,
)
def test_cascade(shape: dict[str, Any], by: str, rule: dict[str, Any]) -> None:
    new, lens = ([1, 1, 1], [1, 40, 33]) if by == "decode" else ([2, 0, 33], [2, 5, 40])
    # The prefix is the sequence at the front, of which no row is among the queries.
    b = batch([0, *new], [96, *lens], **shape)
    indptr, pages = b.paged.qo_indptr, b.paged.kv_indptr
    shared = b.paged.kv_indices[int(pages[0]) : int(pages[1])].contiguous()
    last = b.paged.kv_last_page_len
    own = Paged(
        indptr[1:], pages[1:], b.paged.kv_indices, None if last is None else last[1:],
        b.paged.page_size,
    )  # fmt: skip
    most = max(lens) if by == "decode" else None
    plan = None
    if rule:  # planned before; otherwise in the call
        plan = plan_cascade(
            shared, own, shared_len=96, rows=sum(new), heads=b.q.shape[1], kv_heads=b.kv.shape[2],
            head_dim=b.q.shape[2], q_dtype=b.q.dtype, kv_dtype=b.kv.dtype, config=SMALL,
        )  # fmt: skip
    found = cascade_attention(
        b.q, b.kv, shared, own, scale=b.scale, shared_len=96, max_kv_len=most, scales=b.scales,
        plan=plan, config=SMALL, own_config=SMALL, **rule,
    )  # fmt: skip
    two = cascade_reference(
        b.q, b.kv, shared, own, scale=b.scale, shared_len=96, scales=b.scales,
        dtype=torch.float64, **rule,
    )  # fmt: skip
    close(found, two, b)
    # The same as one sequence each: prefix and own part in one table.
    step = b.paged.page_size
    parts = [torch.cat((shared, own.kv_indices[int(a) : int(z)]))
             for a, z in zip(own.kv_indptr[:-1], own.kv_indptr[1:], strict=True)]  # fmt: skip
    ends = torch.tensor([0, *(len(p) for p in parts)]).cumsum(0).int()
    flat = Paged(indptr[1:], ends, torch.cat(parts), own.kv_last_page_len, step)
    close(found, expected(replace(b, paged=flat), **rule), b)


def test_cascade_cuts_the_prefix_by_its_length_alone() -> None:
    assert prefix_split(32, SMALL) == 32
    assert prefix_split(96, SMALL) == 32
    assert prefix_split(129, SMALL) == 64
