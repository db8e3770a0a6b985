"""`agentkv chat` on a small model: one answer, a pipe, a conversation."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.cli.chat import summary

Run = Callable[..., Any]
MakeEngine = Callable[..., Any]


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def expected(make_engine: MakeEngine) -> Callable[..., str]:
    """The answer to a conversation, from an engine that caches nothing."""
    from agentkv.engine import SamplingParams

    engine = make_engine(prefix_cache=False, dtype="auto")

    def answer(*turns: tuple[str, str]) -> str:
        prompt = engine.render([{"role": role, "content": text} for role, text in turns])
        text: str = engine.generate(prompt, SamplingParams(max_tokens=6, temperature=0)).text
        return text

    return answer


def test_one_answer(agentkv: Run, tiny_llama_dir: Path, expected: Callable[..., str]) -> None:
    arguments = (
        "chat",
        "-m",
        str(tiny_llama_dir),
        "--max-tokens",
        "6",
        "-s",
        "Be brief.",
        "the hi",
    )
    want = expected(("system", "Be brief."), ("user", "the hi"))
    ran = agentkv(*arguments)
    assert (ran.code, ran.out) == (0, want + "\n")
    assert re.search(r"^prefill \d+ tok · cached 0 \(0 %\) · TTFT \d+ ms$", ran.err, re.M)

    facts = json.loads(agentkv(*arguments, "--json").out)
    assert facts["schema"] == 1
    assert facts["text"] == want
    assert facts["cached_tokens"] == 0
    assert facts["miss"] == {"token": 0, "reason": "first_call"}
    assert facts["completion_tokens"] <= 6


def test_a_pipe_is_a_prompt(
    agentkv: Run,
    tiny_llama_dir: Path,
    expected: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the hi\n"))
    ran = agentkv("chat", "-m", str(tiny_llama_dir), "--max-tokens", "6")
    assert (ran.code, ran.out) == (0, expected(("user", "the hi")) + "\n")


def test_a_conversation_reuses_its_history(
    agentkv: Run,
    tiny_llama_dir: Path,
    expected: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = expected(("user", "the hi"))
    second = expected(("user", "the hi"), ("assistant", first), ("user", "and on"))
    monkeypatch.setattr("sys.stdin", Keyboard("the hi\nand on\n\nnot read\n"))
    ran = agentkv("chat", "-m", str(tiny_llama_dir), "--max-tokens", "6")
    assert (ran.code, ran.out) == (0, f"{first}\n{second}\n")
    calls = re.findall(r"prefill (\d+) tok · cached (\d+)", ran.err)
    assert len(calls) == 2
    (one, none), (two, cached) = (tuple(map(int, call)) for call in calls)
    assert none == 0
    assert one <= cached < two


@pytest.mark.parametrize(
    ("stdin", "arguments", "message"),
    [
        (io.StringIO("  \n"), (), "standard input is empty"),
        (Keyboard(), ("--json",), "--json answers one prompt"),
    ],
)
def test_nothing_to_answer_is_a_usage_error(
    agentkv: Run,
    monkeypatch: pytest.MonkeyPatch,
    stdin: io.StringIO,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    ran = agentkv("chat", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_an_unknown_model_exits_3(agentkv: Run) -> None:
    ran = agentkv("chat", "-m", "no-such-model", "hi")
    assert ran.code == 3
    assert ran.err.startswith("error: The model 'no-such-model' does not exist.")


def test_summary() -> None:
    facts = {"prompt_tokens": 412, "cached_tokens": 398, "ttft_ms": 38.4}
    assert summary(facts) == "prefill 412 tok · cached 398 (96 %) · TTFT 38 ms"
