"""The programs in examples/ run as they stand, shortened by their own --quick.

On the embedded model, and those with long prompts on a small one that has the same tokens.
"""

from __future__ import annotations

import itertools
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch")

from agentkv.client import engines
from agentkv.engine.config import EngineConfig

if TYPE_CHECKING:
    from agentkv.engine import Engine

EXAMPLES = Path(__file__).parents[2] / "examples"
COLD = 40
"""More than two programs' prompts have in common by chance: the template's first words."""
ROW = re.compile(r"^[│┃]\s*(\d+)\s*[│┃](.*)[│┃]$", re.M)


@pytest.fixture(scope="module", autouse=True)
def loaded(smollm2_dir: Path, tiny_words_dir: Path) -> Iterator[None]:
    """Keep the shared engines of both models loaded, as one is within one program."""
    configs = [EngineConfig(), EngineConfig(model=str(tiny_words_dir))]
    shared = [engines.acquire(config) for config in configs]
    yield
    for config, engine in zip(configs, shared, strict=True):
        engines.release(config, engine)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`run(name, *args)` runs a program as `python examples/name.py args` and gives its output."""

    def one(name: str, *args: str) -> str:
        path = EXAMPLES / f"{name}.py"
        monkeypatch.setenv("COLUMNS", "160")
        monkeypatch.setattr(sys, "argv", [str(path), *args])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return one


def rows(out: str) -> list[tuple[int, int, str]]:
    """`(prompt, cached, why reuse ended)` of every call in the tables of a program's output."""
    found = []
    for match in ROW.finditer(out):
        cells = [cell.strip() for cell in re.split("[│┃]", match.group(2))]
        counts = [int(c.replace(",", "")) for c in cells if re.fullmatch(r"[\d,]+", c)]
        found.append((counts[0], counts[1], cells[-1]))
    return found


@pytest.mark.slow
def test_react_agent_reuses_every_earlier_step(run: Callable[..., str]) -> None:
    pytest.importorskip("langchain")
    out = run("react_agent", "--quick")
    steps = rows(out)
    assert len(steps) >= 2
    assert steps[0][2].startswith("first_call")
    for (before, _, _), (_, cached, why) in itertools.pairwise(steps):
        # All but the clock's block at the end of the prompt before.
        assert cached > before - 60
        assert why.startswith("appended")

    naive = rows(run("react_agent", "--quick", "--naive"))
    assert all(why.startswith("text_changed") for _, _, why in naive[1:])
    assert max(cached / prompt for prompt, cached, _ in naive[1:]) < min(
        cached / prompt for prompt, cached, _ in steps[1:]
    )


def test_rag_keeps_documents_in_place(run: Callable[..., str], tiny_words_dir: Path) -> None:
    calls = rows(run("rag", "--quick", "--model", str(tiny_words_dir)))
    off, laid, kept = calls[:3], calls[3:6], calls[6:]
    assert len(kept) == 3
    assert [c[0][1] for c in (off, laid, kept)] == [0, 0, 0]  # each has its own salt
    off_cached, laid_cached, kept_cached = (sum(c[1] for c in way) for way in (off, laid, kept))
    assert off_cached < laid_cached < kept_cached
    assert any(why.startswith("document_order") for _, _, why in off)
    assert not any(why.startswith("document_order") for _, _, why in laid + kept)


def test_planner_computes_the_brief_once(run: Callable[..., str], tiny_words_dir: Path) -> None:
    out = run("planner", "--quick", "--model", str(tiny_words_dir))
    plan, *workers, summary = rows(out)
    assert plan[1] < COLD and len(workers) == 5
    for prompt, cached, _ in [*workers, summary]:
        assert cached >= plan[0]  # the planner's whole prompt, at least
        assert prompt - cached < 150


def test_tree_of_thought_shares_its_trunk(run: Callable[..., str]) -> None:
    out = run("tree_of_thought", "--quick")
    levels = rows(out)
    first, second = levels[:3], levels[3:]
    assert len(second) == 6
    # One of three equal prompts is computed, two find all but their last token.
    prompt = first[0][0]
    cold, *warm = sorted(cached for _, cached, _ in first)
    assert cold < COLD and warm == [prompt - 1, prompt - 1]
    assert all(cached >= prompt for _, cached, _ in second)
    assert re.search(r"^2\. \S", out, re.M)


def test_sentiment_labels_come_from_the_schema(run: Callable[..., str]) -> None:
    out = run("sentiment_ko", "--quick")
    assert len(re.findall(r"(긍정|부정|중립) +\(a person says (?:긍정|부정|중립)\)", out)) == 3
    calls = rows(out)
    assert len(calls) == 3
    cold, *warm = sorted(calls, key=lambda call: call[1])
    assert cold[1] < COLD
    assert all(cached > 0.85 * prompt for prompt, cached, _ in warm)


def test_async_chat_streams_side_by_side(run: Callable[..., str]) -> None:
    out = run("async_chat", "--quick")
    calls = rows(out)
    assert len(calls) == 6
    # Only the first of the three computes the instructions.
    assert sorted(calls[i][1] < COLD for i in (0, 2, 4)) == [False, False, True]
    assert all(cached > 0.85 * prompt for prompt, cached, _ in calls[1::2])
    assert {why.split(" ")[0] for _, _, why in calls[1::2]} == {"appended"}


def test_openai_client(shared: Engine, serve: Callable[..., str], run: Callable[..., str]) -> None:
    pytest.importorskip("openai")
    out = run("openai_client", serve(shared) + "/v1")
    counts = re.findall(r"(\d+) prompt tokens, (\d+) of them cached", out)
    assert len(counts) == 3
    assert counts[0][1] == "0"
    assert all(int(cached) > 0.9 * int(prompt) - 16 for prompt, cached in counts[1:])


def test_every_example_is_run_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f'run("{path.stem}"' in text, path.name
