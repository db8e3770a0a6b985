"""The matrix of agents at a fraction of its size: real tokens, a tiny model, a real graph."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from safetensors.numpy import save_file

from agentkv.bench import agents, tiny
from agentkv.bench.agent_cases import cases

if TYPE_CHECKING:
    from agentkv.engine import Engine


@pytest.fixture(scope="module")
def small(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The embedded model's tokenizer and template on random weights: its tokens, at no cost."""
    from agentkv.engine import Engine

    folder = tmp_path_factory.mktemp("small")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (smollm2_dir / name).is_file():
            shutil.copy(smollm2_dir / name, folder / name)
    config = json.loads((smollm2_dir / "config.json").read_text())
    config |= {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    }
    (folder / "config.json").write_text(json.dumps(config))
    weights = tiny._weights(config["vocab_size"], 64, 2, 0)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with Engine(
        model=str(folder), served_name="small", dtype="float32", threads=1, pool_tokens=16384
    ) as made:
        yield made


def test_the_layout_saves_what_a_clock_costs_and_changes_no_answer(small: Engine) -> None:
    report = agents.run(
        "small", engine=small, only=("baseline", "head"), turns=2, steps=3, max_tokens=32
    )
    baseline, head = report.rows
    assert (baseline["calls"], head["calls"]) == (8, 8)
    assert baseline["hit_off"] == baseline["hit_on"] > 0.7
    assert baseline["prompt_off"] == baseline["prompt_on"]
    same = next(check for check in report.checks if "answers" in check.name)
    assert same.ok, same.value
    assert same.value == "8 of 8 equal"
    assert head["hit_off"] < 0.45
    assert head["hit_on"] > 0.6
    assert head["computed_on"] < head["computed_off"] / 2


def test_a_case_is_asked_for_by_name() -> None:
    assert len({case.name for case in cases()}) == 11
    with pytest.raises(ValueError, match="tool selector"):
        agents.run("small", only=("nonsense",))


def test_results_are_of_one_length() -> None:
    made = [agents._result("find_shipment", str(i), 540) for i in range(20)]
    assert {len(text) for text in made} == {540}
    assert len(set(made)) == 20
    assert agents._result("find_shipment", "1", 540) == made[1]
