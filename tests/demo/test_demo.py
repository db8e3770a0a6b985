"""The demo, whole, on a tiny random model: what is cached, why the rest is not, and the JSON."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")

from agentkv.bench.tiny import build
from agentkv.demo.demo import DemoOptions, main, run_demo
from agentkv.demo.desk import connect, fill
from agentkv.demo.desk_run import DeskAgent, ToolOrder
from agentkv.demo.replay import run_traces
from agentkv.demo.result import RunResult
from agentkv.demo.script import CONVERSATIONS
from agentkv.demo.table import why
from agentkv.demo.tools import desk_tools
from agentkv.demo.traces import TraceError, read_session
from agentkv.langchain import ChatAgentKV
from agentkv.report.parts import MissUse

if TYPE_CHECKING:
    from agentkv.engine import Engine


# Two conversations, cut short: three turns of two model calls each.
SHORT = tuple(
    dataclasses.replace(c, turns=c.turns[:n])
    for c, n in zip(CONVERSATIONS[:2], (2, 1), strict=True)
)
TOOLS = {
    "find_customer",
    "list_orders",
    "get_order",
    "track_shipment",
    "check_stock",
    "check_warranty",
    "list_refunds",
    "create_refund",
    "change_address",
    "open_ticket",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tiny"))


def ticking() -> Callable[[], str]:
    """A clock that is seven seconds later each time."""
    seconds = itertools.count(0, 7)
    return lambda: "12:{:02}:{:02} on 3 March".format(*divmod(next(seconds), 60))


class Eager(ChatAgentKV):
    """A model that uses a tool wherever it may: a random model's own choice says nothing."""

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **kwargs: Any) -> Any:
        forced = "required" if tool_choice == "auto" else tool_choice
        return super().bind_tools(tools, tool_choice=forced, **kwargs)


@pytest.fixture(scope="module")
def runs(tiny: Path) -> Iterator[list[RunResult]]:
    options = DemoOptions(
        model=str(tiny),
        dtype="float32",
        conversations=SHORT,
        max_tokens=160,  # a token is a byte here
        clock=ticking(),
        steps=1,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentkv.langchain.ChatAgentKV", Eager)
        yield run_demo(options)


def test_the_laid_out_run_is_cached_from_the_second_call_on(runs: list[RunResult]) -> None:
    off, laid_out = runs
    lowest = laid_out.lowest_hit()
    assert lowest is not None and lowest >= 0.9
    assert {row.report.reason for row in laid_out.calls if row.call > 1} == {"appended"}
    # The second conversation shares tools, instructions and policy with the first.
    first = next(row for row in laid_out.calls if row.conversation == "mateus")
    assert first.report.hit_rate > 0.9
    assert off.hit_rate < 0.5 < laid_out.hit_rate


def test_pages_of_sixteen_reach_the_same(tiny: Path) -> None:
    options = DemoOptions(
        model=str(tiny),
        dtype="float32",
        page_size=16,
        layouts=("static_first",),
        conversations=CONVERSATIONS[:1],
        max_tokens=160,
        steps=0,
    )
    (run,) = run_demo(options)
    lowest = run.lowest_hit()
    assert lowest is not None and lowest >= 0.9
    assert all(row.report.cached_tokens % 16 == 0 for row in run.calls)


def test_the_naive_run_names_the_clock_and_the_tool_order(runs: list[RunResult]) -> None:
    reasons: set[str] = set()
    for conversation in ("ingrid", "mateus"):
        misses = [
            row.miss
            for row in runs[0].calls
            if row.conversation == conversation and row.call > 1 and row.miss
        ]
        reasons.update(miss.reason for miss in misses)
        for miss in misses:
            if miss.reason == "text_changed":
                assert miss.was != miss.now
                assert "on 3" in str(miss.was) and "on 3" in str(miss.now)
    assert reasons == {"text_changed", "tool_order"}


def test_every_turn_uses_a_tool_and_then_answers(runs: list[RunResult]) -> None:
    for run in runs:
        for conversation in SHORT:
            rows = [row for row in run.calls if row.conversation == conversation.id]
            assert [row.turn for row in rows] == [
                turn for turn in range(1, len(conversation.turns) + 1) for _ in range(2)
            ]
            # One call with a tool, and one that may not use any: the tools are still in its prompt.
            assert [len(row.tools) for row in rows] == [1, 0] * len(conversation.turns)
            assert all(row.answer for row in rows if not row.tools)
            for called, answered in zip(rows[::2], rows[1::2], strict=True):
                more = answered.report.prompt_tokens - called.report.prompt_tokens
                assert 0 < more < 1000  # bytes: the call and its result


def test_json_has_the_agreed_shape(
    runs: list[RunResult], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agentkv.demo.demo.run_demo", lambda options, say: runs)
    assert main(DemoOptions(model="tiny"), as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1
    assert [run["layout"] for run in found["runs"]] == ["off", "static_first"]
    for run in found["runs"]:
        for call in run["calls"]:
            assert {"conversation", "turn", "prompt_tokens", "cached_tokens", "ttft_ms"} < set(call)
            assert 0 <= call["cached_tokens"] < call["prompt_tokens"]
            assert call["ttft_ms"] > 0
            assert call["miss"] is None or isinstance(call["miss"]["reason"], str)
            assert call["tools"] == [] or call["tools"][0] in TOOLS
        totals = run["totals"]
        assert totals["calls"] == len(run["calls"]) == 6
        assert totals["tool_calls"] == 3
        assert totals["cached_tokens"] == sum(call["cached_tokens"] for call in run["calls"])


def test_tables_print(
    runs: list[RunResult], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agentkv.demo.demo.run_demo", lambda options, say: runs)
    assert main(DemoOptions(model="tiny"), verbose=True) == 0
    out = capsys.readouterr().out
    assert "tool_order in tools" in out and "Totals" in out
    assert "[off] ingrid, turn 1: -> " in out and "of them tool calls" in out


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("track_shipment", {}, "order_id: Field required"),
        ("create_refund", {"order_id": "A-4995", "cents": "lots", "reason": "x"}, "cents: "),
        ("create_refund", {"order_id": "A-1", "cents": 5, "reason": "x"}, "no order A-1"),
        ("track", {"order_id": "A-5001"}, "there is no tool track"),
    ],
)
def test_what_a_model_got_wrong_comes_back_as_the_result(
    tmp_path: Path, name: str, args: dict[str, Any], says: str
) -> None:
    fill(tmp_path / "desk.sqlite")
    connection = connect(tmp_path / "desk.sqlite")
    agent = DeskAgent(ChatAgentKV(), "off", desk_tools(connection), clock=ticking(), seed=0)
    result = agent._use({"name": name, "args": args, "id": "call_1", "type": "tool_call"})
    assert says in json.loads(result.text)["error"]
    assert (result.tool_call_id, result.name) == ("call_1", name)
    connection.close()


def recorded(count: int, size: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for i in range(count):
        messages.append({"role": "user", "content": f"{i}: " + "x" * size})
        call = {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": "ok"})
        messages.append({"role": "assistant", "content": f"answer {i}"})
    return {"session_id": "s", "messages": messages, "tools": [{"name": "f", "parameters": {}}]}


def test_a_trace_feeds_the_recorded_answers_back(make_engine: Callable[..., Engine]) -> None:
    model = ChatAgentKV(engine=make_engine(), max_tokens=2, temperature=0, layout="static_first")
    result = run_traces(model, "static_first", [read_session(recorded(3, 30))])
    assert result.refused == 0
    assert [row.turn for row in result.calls] == [1, 1, 2, 2, 3, 3]
    for before, row in itertools.pairwise(result.calls):
        # All of the prompt before is in the next one; only the recorded answer is new.
        assert row.report.cached_tokens >= before.report.prompt_tokens
    assert result.calls[-1].report.reason == "appended"


def test_calls_beyond_the_context_are_counted_apart(make_engine: Callable[..., Engine]) -> None:
    model = ChatAgentKV(engine=make_engine(), max_tokens=2, temperature=0)
    result = run_traces(model, "static_first", [read_session(recorded(6, 400))])
    assert result.refused > 0
    assert result.refused + len(result.calls) == 12
    assert max(row.report.prompt_tokens for row in result.calls) < 2048


def test_a_trace_without_answers_goes_on_with_the_models_own(
    make_engine: Callable[..., Engine],
) -> None:
    model = ChatAgentKV(engine=make_engine(), max_tokens=4, temperature=0)
    session = read_session({"session_id": "s", "user_turns": [["one"], ["two"]]})
    first, second = run_traces(model, "static_first", [session]).calls
    assert second.report.cached_tokens >= first.report.prompt_tokens
    assert second.report.prompt_tokens > first.report.prompt_tokens + 4


def test_trace_file_through_the_demo(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(json.dumps(recorded(1, 20)) for _ in range(3)))
    options = DemoOptions(
        model=str(tiny), dtype="float32", trace=path, limit=2, max_tokens=2, layouts=("off",)
    )
    (run,) = run_demo(options)
    assert len(run.calls) == 4
    path.write_text("")
    with pytest.raises(TraceError):
        run_demo(options)


def test_tool_order_changes_and_is_the_same_in_every_run() -> None:
    names: list[Any] = list("abcdefghij")
    one, two = ToolOrder(names, 0), ToolOrder(names, 0)
    orders = [one.next() for _ in range(8)]
    assert orders == [two.next() for _ in range(8)]
    assert orders[0] == orders[1] == names
    assert len({tuple(order) for order in orders}) == 4
    assert all(set(order) == set(names) for order in orders)


def test_why_is_one_line() -> None:
    assert why(None) == "all but the last token was cached"
    miss = MissUse(3, "text_changed", "messages[0]", "12:00\nThe", "12:01" + "x" * 60)
    text = why(miss)
    assert text.startswith('text_changed in messages[0]: "12:00 The" -> "12:01') and "…" in text
    assert "\n" not in text
    assert why(MissUse(3, "appended", "messages[4]", "a", "b")) == "appended in messages[4]"
    moved = MissUse(3, "tool_order", "tools", "a", "b", "tool 1 was f, is g")
    assert why(moved) == "tool_order in tools: tool 1 was f, is g"
