"""The arithmetic of the benches: rates, differences, memory marks, reports."""

from __future__ import annotations

import json
import random

import pytest

torch = pytest.importorskip("torch")

from agentkv.bench.check import Report, emit  # noqa: E402
from agentkv.bench.clients import Outcome, Tree  # noqa: E402
from agentkv.bench.cpu import Samples, shared_rate, summarise  # noqa: E402
from agentkv.bench.load import LEVELS, memory_marks  # noqa: E402
from agentkv.bench.parity import first_difference  # noqa: E402
from agentkv.bench.peer import PeerOutput  # noqa: E402


def test_rate_counts_only_while_all_streams_decode() -> None:
    # One token a second each, the second stream two seconds late: both run from 2 to 9.
    first = [float(t) for t in range(10)]
    second = [t + 2.0 for t in first]
    assert shared_rate([first, second]) == pytest.approx(14 / 7)
    assert shared_rate([first]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="all at once"):
        shared_rate([[0.0, 1.0], [2.0, 3.0]])


def test_targets_follow_the_medians() -> None:
    ours = Samples([100.0], [24.0], [100.0], [1.0], [0.09])
    theirs = Samples([100.0], [20.0], [50.0], [2.0], [])
    assert summarise("float32", ours, theirs, 1).ok
    ours.warm = [0.11]
    ours.batch = [90.0]
    failed = [c.name for c in summarise("float32", ours, theirs, 1).checks if not c.ok]
    assert failed == [
        "float32: batch of 8 against the single stream",
        "float32: cached first token against cold",
    ]


def test_a_difference_is_a_tie_only_within_the_margin() -> None:
    logits = torch.zeros(3, 5)
    logits[0, 1], logits[1, 2], logits[2, 3] = 1.0, 1.0, 1.0
    logits[1, 4] = 1.0 - 5e-5
    theirs = PeerOutput((1, 2, 3), logits)
    assert first_difference((1, 2, 3), theirs) is None
    near = first_difference((1, 4, 0), theirs)
    assert near is not None and near.step == 1 and near.tie
    far = first_difference((1, 2, 0), theirs)
    assert far is not None and far.step == 2 and not far.tie


def test_prompts_of_a_tree_share_prefixes() -> None:
    tree, rng = Tree(LEVELS, 1000, 3), random.Random(0)
    prompts = [tree.prompt(rng) for _ in range(60)]
    assert max(map(len, prompts)) == tree.longest == sum(LEVELS)
    assert len({tuple(p[: LEVELS[0] - 40]) for p in prompts}) == 3
    assert Tree(LEVELS, 1000, 3).prompt(random.Random(0)) == prompts[0]


def test_outcome_notices_wrong_usage_and_unequal_answers() -> None:
    outcome = Outcome()

    def usage(prompt: int, cached: int) -> dict[str, object]:
        details = {"cached_tokens": cached}
        return {"prompt_tokens": prompt, "completion_tokens": 2, "prompt_tokens_details": details}

    outcome.finished([1, 2, 3], usage(3, 2), [7, 8])
    outcome.finished([1, 2, 3], usage(3, 0), [7, 8, 9])
    assert (outcome.compared, outcome.unequal, outcome.errors) == (1, 0, [])
    outcome.finished([1, 2, 3], usage(3, 0), [7, 8, 1])
    assert outcome.unequal == 1
    outcome.finished([4], usage(1, 1), [7])
    outcome.finished([5, 6], usage(3, 0), [7])
    assert len(outcome.errors) == 2


def test_memory_marks() -> None:
    rss = [100.0, 110, 150, 160, 140, 141, 142, 143, 144, 145]
    assert memory_marks(rss) == (100.0, 160, 145)
    assert memory_marks([5.0]) == (5.0, 5.0, 5.0)


def test_reports_say_whether_they_hold(capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = Report("a", "A", [{"n": 1, "x": 0.5}]), Report("b", "B")
    good.check("fine", "1", "1", True)
    bad.check("broken", "2", "1", False)
    assert emit([good], as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["ok"], found["rows"]) == (1, True, [{"n": 1, "x": 0.5}])
    assert emit([good, bad], as_json=True) == 1
    assert [b["ok"] for b in json.loads(capsys.readouterr().out)["benches"]] == [True, False]
    assert emit([bad], as_json=False) == 1
    assert "FAIL" in capsys.readouterr().out
