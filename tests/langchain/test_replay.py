"""Must hold: a loop of tool calls reuses every token up to the newest message, though LangChain
sends each call back as parsed arguments, dumped in its own way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from agentkv.langchain import ChatAgentKV
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine import Engine

CALLS = 12
Calls = list[tuple[int, int, str | None]]


@tool
def note(text: str) -> str:
    """Write something down."""
    return "noted"


def loop(engine: Engine) -> Calls:
    """`(prompt tokens, cached tokens, reason)` of each call of one agent loop."""
    llm = ChatAgentKV(model="tiny", engine=engine, max_tokens=72, session="loop", seed=1)
    agent = llm.bind_tools([note], tool_choice="any", parallel_tool_calls=False)
    history: list[Any] = [SystemMessage("You keep a ledger."), HumanMessage("Tidy it up.")]
    out: Calls = []
    for step in range(CALLS):
        answer = agent.invoke(history, temperature=1.0)
        report = CacheReport.from_message(answer)
        assert report is not None and isinstance(answer, AIMessage)
        out.append((report.prompt_tokens, report.cached_tokens, report.reason))
        (call,) = answer.tool_calls
        # A new message with the parsed arguments only: what a checkpoint or another process keeps.
        args = json.loads(json.dumps(call["args"], ensure_ascii=True, indent=step % 3))
        again = {"name": call["name"], "args": args, "id": call["id"], "type": "tool_call"}
        nothing: Any = [] if step % 2 else ""
        history += [
            AIMessage(content=nothing, tool_calls=[again]),
            ToolMessage(f"{step}", tool_call_id=call["id"]),
        ]
    return out


def tail_tokens(engine: Engine, step: int) -> int:
    """Tokens of one tool result as the newest message, and of the generation prompt."""
    empty = [{"role": "user", "content": "."}]
    result = {"role": "tool", "tool_call_id": "x", "content": f"{step}"}
    return len(engine.render([*empty, result]).token_ids) - len(
        engine.render(empty, add_generation_prompt=False).token_ids
    )


@pytest.fixture(scope="module")
def kept(tiny_words_dir: Path) -> tuple[Calls, list[int]]:
    """The loop on an engine that replays, and the tokens of each tool result."""
    from agentkv.engine import Engine

    with Engine(
        model=str(tiny_words_dir),
        served_name="tiny",
        dtype="float32",
        threads=1,
        pool_tokens=4096,
        check_invariants=True,
    ) as engine:
        return loop(engine), [tail_tokens(engine, step) for step in range(CALLS)]


def test_every_call_reuses_all_up_to_the_newest_message(kept: tuple[Calls, list[int]]) -> None:
    calls, tails = kept
    for (prompt, cached, reason), tail in zip(calls[1:], tails, strict=False):
        # New are the last sampled token (it has no KV yet), the two that close the turn, and the
        # tool's result.
        assert prompt - cached <= tail + 3
        assert reason == "appended"


def test_without_replay_the_loss_shows(
    kept: tuple[Calls, list[int]], make_engine: Callable[..., Engine], tiny_words_dir: Path
) -> None:
    lost = loop(make_engine(model=str(tiny_words_dir), replay_entries=0))
    computed = [sum(prompt - cached for prompt, cached, _ in c[1:]) for c in (kept[0], lost)]
    assert computed[1] > 1.5 * computed[0]
    assert any(reason == "retokenized" for _, _, reason in lost[1:])
