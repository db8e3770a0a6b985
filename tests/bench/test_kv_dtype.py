"""The bench of KV dtypes, short, on a tiny random model."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from agentkv.bench import kv_dtype
from agentkv.bench.tiny import build


def test_kl_is_zero_for_equals_and_right_for_others() -> None:
    logits = torch.randn(5, 40)
    assert float(kv_dtype.divergence(logits, logits + 3).max()) < 1e-12
    two = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    found = kv_dtype.divergence(two[:1], two[1:])
    assert float(found) == pytest.approx(0.5108256, abs=1e-6)


def test_a_tally_finds_the_first_difference() -> None:
    logits = torch.zeros(2, 3)
    wide, narrow = (
        kv_dtype.Answer(logits, tokens, 1.0, True) for tokens in ([1, 2, 3, 4], [1, 2, 9, 4])
    )
    tally = kv_dtype.Tally()
    tally.add(wide, narrow)
    tally.add(wide, wide)
    assert tally.first == [2, 4] and tally.equal == [0.75, 1.0]
    assert len(tally.at_end) == 2 and len(tally.anywhere) == 4


def test_a_short_run(tmp_path: Path, traces: Path) -> None:
    model = build(tmp_path / "tiny")
    answers, memory = kv_dtype.run(
        str(model), traces=traces, prompts=3, new_tokens=4, max_prompt=600, threads=1
    )
    rows = {row["pair"]: row for row in answers.rows}
    assert set(rows) == {"float32 || bfloat16", "float32 || fp8", "bfloat16 || fp8"}
    # The wider dtype is the closer one, and neither is the same.
    assert 0 < rows["float32 || bfloat16"]["all_mean"] < rows["float32 || fp8"]["all_mean"] < 1000
    sizes = {row["kv_dtype"]: row["bytes_per_token"] for row in memory.rows}
    assert sizes == {"float32": 512, "bfloat16": 256, "fp8_e4m3": 128}
    assert memory.ok and all(row["decode_tokens_per_s"] > 0 for row in memory.rows)
    with pytest.raises(ValueError, match="raise --max-prompt"):
        kv_dtype.run(str(model), traces=traces, prompts=1, max_prompt=1)
