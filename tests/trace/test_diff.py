"""Two logs beside each other: what got worse, to what, and which blocks changed places."""

from __future__ import annotations

import json
import random
from dataclasses import replace

from agentkv.trace.analyse import analyse
from agentkv.trace.call import Call
from agentkv.trace.diff import LogDiff, compare_logs
from agentkv.trace.layouts import layout_of
from agentkv.trace.render import Renderer
from tests.trace.build import call, chat

TOPICS = "date place name mood time plan topic voice owner source colour weight".split()  # noqa: SIM905
RULES = " ".join(f"Rule on {w}: keep the {w} of every memory short and true." for w in TOPICS)
OTHERS = " ".join(f"Write the number {w} in words." for w in TOPICS)
WORDS = "sea ship port cargo crew storm wind mast rope sail deck".split()  # noqa: SIM905


def memories(*, swapped: bool, seed: int = 3) -> list[Call]:
    """200 calls on 30 transcripts (B076): rules and transcript are two system messages."""
    rng = random.Random(seed)
    transcripts = [" ".join(rng.choices(WORDS, k=60)) for _ in range(30)]
    out = []
    for n in range(200):
        pair = [("system", RULES), ("system", f"Transcript: {transcripts[rng.randrange(30)]}")]
        if swapped:
            pair.reverse()
        out.append(call(*pair, ("user", f"What was said in part {n}?"), system=None, number=n))
    return out


def clocked(n: int) -> list[Call]:
    return [
        call(("user", f"Where is ship {i}?"), system=f"Now: 10:{i:02}:{i * 7 % 60:02}.\n{RULES}")
        for i in range(n)
    ]


def plain(n: int, rules: str = RULES) -> list[Call]:
    return [call(("user", f"Where is ship {i}?"), system=rules) for i in range(n)]


def compared(before: list[Call], after: list[Call]) -> LogDiff:
    renderer = Renderer()
    return compare_logs(
        analyse(lambda: before, renderer=renderer, fixed=False),
        analyse(lambda: after, renderer=renderer, fixed=False),
        (layout_of(before, renderer), layout_of(after, renderer)),
    )


def test_b076_two_system_messages_swapped() -> None:
    found = compared(memories(swapped=False), memories(swapped=True, seed=5))
    assert found.worse
    assert found.fall > 0.08 and found.tokens > 4_000
    change = next(c for c in found.layout if c.kind == "swapped")
    assert (change.name_was, change.name_now, change.other) == (
        "messages[0]", "messages[1]", "messages[0]",
    )  # fmt: skip
    assert change.behind_was == 0 and change.behind_now > 50
    assert change.text.startswith("Rule on date")
    assert any("fell from" in s for s in found.why)
    said = json.loads(json.dumps(found.to_dict()))
    assert said["worse"] and said["layout"][0]["kind"] == "swapped"


def test_the_other_way_round_is_better() -> None:
    found = compared(memories(swapped=True), memories(swapped=False))
    assert not found.worse and found.tokens < 0
    assert next(c for c in found.layout if c.kind == "swapped").behind_now == 0


def test_the_same_traffic_on_another_day_is_no_worse() -> None:
    found = compared(memories(swapped=False, seed=3), memories(swapped=False, seed=4))
    assert not found.worse
    assert found.layout == ()


def test_a_new_cause_is_named_with_its_tokens() -> None:
    found = compared(plain(30), clocked(40))
    assert [(c.state, c.cause.rule) for c in found.causes] == [("new", "KV101")]
    assert found.causes[0].tokens_before == 0 < found.causes[0].tokens_after
    assert any("KV101 timestamp-in-prefix" in s and "is new" in s for s in found.why)
    back = compared(clocked(40), plain(30))
    assert [c.state for c in back.causes] == ["gone"]
    assert not back.worse


def test_logs_of_different_lengths_compare_by_share() -> None:
    found = compared(clocked(40), clocked(60))
    assert [c.state for c in found.causes] == ["same"]
    assert not found.worse


def test_a_cause_that_grew() -> None:
    others = [
        call(("user", f"{i} times {i}?"), system=f"You only do sums. {OTHERS}") for i in range(30)
    ]
    found = compared([*others, *clocked(10)], [*others, *clocked(40)])
    assert [c.state for c in found.causes] == ["grown"]
    assert any("grew by" in s for s in found.why)


def test_words_of_a_block_changed_and_blocks_that_came_and_went() -> None:
    tools = [(n, json.dumps({"name": n, "description": f"Finds the {n} of a ship in the register of ships."}))
             for n in ("draught", "owner", "port")]  # fmt: skip
    before = [call(("user", f"ship {i}?"), system=RULES, tools=tools[:2]) for i in range(10)]
    after = [
        call(("user", f"ship {i}?"), system=RULES.replace("mood", "temper"), tools=tools[1:])
        for i in range(10)
    ]
    kinds = {c.kind: c for c in compared(before, after).layout}
    assert kinds["added"].name_now == "port"
    assert kinds["removed"].name_was == "draught"
    assert (kinds["changed"].was, kinds["changed"].now) == ("mood", "temper")


def test_blocks_in_another_order() -> None:
    tools = [(n, json.dumps({"name": n, "description": f"Finds the {n} of a ship in the register of ships."}))
             for n in ("draught", "owner", "port")]  # fmt: skip
    found = compared(
        [call(("user", f"ship {i}?"), system=RULES, tools=tools) for i in range(10)],
        [call(("user", f"ship {i}?"), system=RULES, tools=tools[::-1]) for i in range(10)],
    )
    assert [c.kind for c in found.layout] == ["order"]
    assert found.layout[0].name_was in ("draught", "port")


def test_tokens_of_a_call_by_kind() -> None:
    found = compared(plain(10), plain(10, RULES + RULES))
    before, after = next((a, b) for k, a, b in found.by_kind if k == "instructions")
    assert 1.8 < after / before < 2.1


def test_an_empty_log_is_neither_better_nor_worse() -> None:
    found = compared([], plain(5))
    assert not found.worse and found.tokens == 0
    assert not compared(plain(5), []).worse


def test_failed_calls_are_left_out() -> None:
    calls = [replace(c, error="no") for c in chat(3)]
    assert layout_of(calls, Renderer()).sites == ()
