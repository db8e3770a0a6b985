"""Attention over boxes of a tensor descriptor, under the interpreter, against float64.

What lies in a box behind a sequence's end is NaN, as everywhere in these batches.

Run by tests/kernels/test_interpreted.py; by hand: TRITON_INTERPRET=1 pytest <this file>.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from agentkv.kernels import attend, tune
from agentkv.kernels.cascade_attention import cascade_attention, cascade_reference
from agentkv.kernels.decode_attention import decode_attention, decode_reference
from agentkv.kernels.extend_attention import extend_attention
from agentkv.kernels.paged import Paged
from agentkv.kernels.paged_attention import attention_reference
from agentkv.kernels.tuning import Config, Key
from tests.kernels.interpreter.cases import BF16, FP8, SMALL, Batch, batch, close

BOXED = replace(SMALL, tma=True)
"""Tiles of 32 keys: two boxes of pages of 16, one of a page of 32, half a page of 64."""

SHAPES: list[dict[str, Any]] = [
    {"page": 16, "group": 4, "kv_heads": 2, "dim": 128, "q_dtype": BF16, "kv_dtype": BF16},
    {"page": 32, "group": 3, "kv_heads": 2, "dim": 80, "q_dtype": BF16, "kv_dtype": BF16},
    {"page": 64, "group": 8, "kv_heads": 1, "dim": 96},
    {"page": 16, "group": 1, "kv_heads": 2, "dim": 64, "q_dtype": BF16, "kv_dtype": FP8},
    {"page": 64, "group": 20, "kv_heads": 1, "dim": 256, "q_dtype": BF16, "kv_dtype": FP8, "unit": 1e3},
]  # fmt: skip

RULES: list[dict[str, Any]] = [{"window": 32}, {"window": 40, "softcap": 2.0}, {"softcap": 30.0}]


def name(value: Any) -> str:
    return "-".join(str(v).removeprefix("torch.") for v in value.values())


def decoded(b: Batch, **rule: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return decode_attention(
        b.q, b.kv, b.paged, scale=b.scale, scales=b.scales, config=BOXED, **rule
    )


def decode_expected(b: Batch, **rule: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return decode_reference(
        b.q, b.kv, b.paged, scale=b.scale, scales=b.scales, dtype=torch.float64, **rule
    )


def extended(b: Batch, **rule: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return extend_attention(
        b.q, b.kv, b.paged, scale=b.scale, scales=b.scales, config=BOXED, **rule
    )


def extend_expected(b: Batch, **rule: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return attention_reference(
        b.q, b.kv, b.paged, scale=b.scale, scales=b.scales, dtype=torch.float64, **rule
    )


@pytest.fixture(autouse=True)
def boxes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """FP8 is widened as where there are boxes, so that NaN codes are NaN; pointers are out of use."""
    monkeypatch.setattr(attend, "native_fp8", lambda arch: True)
    for module in ("decode", "extend"):
        monkeypatch.setattr(f"agentkv.kernels.{module}_attention.attend", None)


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_decode(shape: dict[str, Any]) -> None:
    b = batch([1] * 4, [1, 32, 0, 133], **shape)
    close(decoded(b), decode_expected(b), b)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_decode_with_rules(rule: dict[str, Any]) -> None:
    b = batch([1] * 2, [40, 70], page=16, group=3, kv_heads=1)
    close(decoded(b, **rule), decode_expected(b, **rule), b)


def test_a_decoded_row_is_the_same_alone_and_in_company() -> None:
    b = batch([1] * 2, [33, 150], page=16, kv_heads=1, q_dtype=BF16, kv_dtype=BF16)
    together = decoded(b)
    ends, last = b.paged.kv_indptr[1:], b.paged.kv_last_page_len
    assert last is not None
    one = torch.tensor([0, 1], dtype=torch.int32)
    paged = Paged(one, ends, b.paged.kv_indices, last[1:], 16)
    alone = decoded(replace(b, q=b.q[1:], paged=paged), max_kv_len=1000)
    assert torch.equal(alone[0][0], together[0][1])
    assert torch.equal(alone[1][0], together[1][1])


@pytest.mark.parametrize("shape", SHAPES[:2] + SHAPES[3:4], ids=name)
def test_extend(shape: dict[str, Any]) -> None:
    b = batch([1, 5, 0, 12], [1, 37, 40, 12], **shape)
    close(extended(b), extend_expected(b), b)


def test_extend_with_rules() -> None:
    b = batch([13, 3], [45, 70], page=16, group=3, kv_heads=1)
    rule = RULES[1]
    close(extended(b, **rule), extend_expected(b, **rule), b)


def test_cascade() -> None:
    b = batch([0, 1, 1], [96, 1, 40], page=16, kv_heads=1, q_dtype=BF16, kv_dtype=BF16)
    indptr, pages, last = b.paged.qo_indptr, b.paged.kv_indptr, b.paged.kv_last_page_len
    assert last is not None
    shared = b.paged.kv_indices[int(pages[0]) : int(pages[1])].contiguous()
    own = Paged(indptr[1:], pages[1:], b.paged.kv_indices, last[1:], 16)
    found = cascade_attention(
        b.q, b.kv, shared, own, scale=b.scale, shared_len=96, max_kv_len=40, config=BOXED,
        own_config=BOXED,
    )  # fmt: skip
    two = cascade_reference(
        b.q, b.kv, shared, own, scale=b.scale, shared_len=96, dtype=torch.float64
    )
    close(found, two, b)


class Timed(tune.Measured):
    """Without a device's clock."""

    def seconds(self, run: tune.Case, config: Config) -> float:
        return 1.0 if config.tma else 2.0


def test_the_tuner_takes_no_tiles_that_give_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the default tiles go by pointers
    monkeypatch.setattr(tune, "PAGES", (16, 32))
    wrong: list[int] = []

    def some_wrong(
        q: torch.Tensor, kv: torch.Tensor, paged: Paged, *, config: Config, **named: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = decode_attention(q, kv, paged, config=config, **named)
        return out * (0.9 if config.tma and paged.page_size in wrong else 1.0), lse

    monkeypatch.setattr(tune, "decode_attention", some_wrong)
    key = Key("decode", "interpreter", 64, 16)
    measured = Timed("cpu", seqs=1, length=32)
    wrong.append(32)
    with pytest.raises(tune.Unfit, match="pages of 32"):
        measured(key, BOXED)
    wrong.clear()
    assert measured(key, BOXED) == 1.0
