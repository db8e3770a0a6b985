"""The report of a whole log: its shape, and that what it says is true."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkv.trace.analyse import analyse
from agentkv.trace.caches.choose import cache_model
from agentkv.trace.call import Call, Usage
from agentkv.trace.render import Renderer
from agentkv.trace.replay import Replay
from agentkv.trace.report import TraceReport
from tests.trace.build import call, chat

RULES = " ".join(
    f"Rule {i}: keep the {w} of the ship dry at night." for i, w in enumerate("abcdefghijk")
)


def clocked(n: int) -> list[Call]:
    return [
        call(("user", f"Where is ship {i}?"), system=f"It is 10:{i:02d}. {RULES}", number=i)
        for i in range(n)
    ]


def test_the_shape_that_others_rely_on() -> None:
    calls = clocked(12)
    found = analyse(lambda: calls).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["schema"] == 1
    assert {"requests", "sessions", "prompt_tokens", "hit_rate", "causes"} <= set(found)
    assert set(found["hit_rate"]) >= {"now", "fixed", "ceiling"}
    (row,) = found["causes"]
    assert set(row) >= {
        "reason", "rule", "name", "segment", "count", "tokens_lost", "share", "first", "advice",
    }  # fmt: skip
    assert (row["reason"], row["rule"], row["name"]) == (
        "text_changed",
        "KV101",
        "timestamp-in-prefix",
    )
    assert (row["count"], row["share"], row["segment"]) == (11, 1.0, "messages[0]")
    assert row["first"]["line"] == 2 and row["first"]["compared_with"]["line"] == 1
    assert row["first"]["was"] == "10:00" and row["first"]["now"] == "10:01"
    assert row["first"]["before"].endswith("It is ")


def test_healthy_reasons_are_counted_and_not_listed() -> None:
    found = analyse(lambda: chat(8))
    assert found.causes == () and (found.first_calls, found.appended) == (1, 7)
    assert found.rates.now == found.rates.fixed == found.rates.ceiling


def test_the_rates_are_those_of_a_replay_and_in_order() -> None:
    calls = clocked(20)
    found = analyse(lambda: calls)
    replay = Replay(cache_model("agentkv"))
    for one in calls:
        replay.call(one, Renderer().render(one))
    assert found.rates.now == replay.total.rate
    assert found.rates.fixed is not None
    assert found.rates.now <= found.rates.fixed <= found.rates.ceiling
    lost = sum(c.tokens_lost for c in found.causes)
    assert found.rates.ceiling == pytest.approx(
        found.rates.now + lost / found.prompt_tokens, abs=1e-3
    )
    assert found.rates.within + found.rates.across == pytest.approx(found.rates.now)


def test_a_stream_that_can_be_read_once_has_no_rate_if_mended() -> None:
    assert analyse(iter(clocked(5))).rates.fixed is None


def test_what_was_measured_is_not_what_was_replayed() -> None:
    said = Usage(prompt=1000, cached=900)
    calls = [*clocked(3), call(("user", "again?"), system=RULES, usage=said, number=9)]
    found = analyse(lambda: calls).measured
    assert (found.requests, found.prompt_tokens, found.cached_tokens) == (1, 1000, 900)
    assert analyse(lambda: clocked(3)).measured.to_dict()["hit_rate"] is None


def test_an_empty_log() -> None:
    found = analyse(list)
    assert isinstance(found, TraceReport) and found.requests == 0 and found.causes == ()
    assert json.dumps(found.to_dict())


def test_a_refused_call_counts_for_nothing() -> None:
    calls = clocked(4)
    refused = call(("user", "?"), system=RULES, error="429", number=5)
    found = analyse(lambda: [*calls, refused])
    assert (found.requests, found.failed) == (4, 1)
    assert found.prompt_tokens == analyse(lambda: calls).prompt_tokens


TEMPLATE = """{%- for m in messages -%}
{%- if loop.last and tools -%}[TOOLS]{{ tools | tojson }}[/TOOLS]{%- endif -%}
<{{ m.role }}>{{ m.content }}</{{ m.role }}>
{%- endfor -%}"""


def test_a_template_that_moves_the_tools_is_the_only_loss(tmp_path: Path) -> None:
    path = tmp_path / "chat_template.jinja"
    path.write_text(TEMPLATE)
    tool = {"type": "function", "function": {
        "name": "draught", "description": "How deep a ship lies in the water, in metres. " * 4,
        "parameters": {"type": "object", "properties": {"ship": {"type": "integer"}}},
    }}  # fmt: skip
    said: list[tuple[str, str]] = []
    calls: list[Call] = []
    for i in range(6):
        said.append(("user", f"How deep is ship {i}, when it is loaded?"))
        calls.append(call(*said, tools=[("draught", json.dumps(tool))], system=RULES, number=i))
        said.append(("assistant", f"Ship {i} lies {i + 3} metres deep in the water."))
    found = analyse(lambda: calls, renderer=Renderer(template=path), fixed=False)
    assert [(c.reason, c.rule) for c in found.causes] == [("template", "KV602")]
    assert found.causes[0].count == 5 and found.causes[0].tokens_lost > 5 * 20
    assert analyse(lambda: calls, fixed=False).causes == ()
