"""Replay: the tree's rates against a count by hand, sizes, times, and providers' rules."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.trace.caches.choose import cache_model, names
from agentkv.trace.caches.radix import POLICIES
from agentkv.trace.call import Call, Part, Piece, Where
from agentkv.trace.render import Renderer
from agentkv.trace.replay import Replay, curve, split
from tests.trace.build import call, chat


def blocks(ids: list[int], number: int = 0, length: int | None = None) -> Call:
    return Call(
        Where("l", number),
        blocks=np.array(ids, dtype=np.int32),
        block_size=4,
        length=length or 4 * len(ids),
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=12))
def test_unlimited_is_the_longest_prefix_ever_seen(prompts: list[list[int]]) -> None:
    # A block id stands for all text up to it, so equal ids mean equal prefixes.
    def chained(ids: list[int]) -> list[int]:
        out, state = [], 7
        for i in ids:
            state = hash((state, i)) & 0x7FFFFFFF
            out.append(state)
        return out

    replay, seen = Replay(cache_model("agentkv")), set[int]()
    for prompt in prompts:
        ids = chained(prompt)
        expected = 0
        while expected < len(ids) and ids[expected] in seen:
            expected += 1
        one = blocks(ids)
        assert replay.call(one, Renderer().render(one)).cached == 4 * expected
        seen.update(ids)


def test_a_smaller_cache_never_serves_more() -> None:
    rng = np.random.default_rng(0)
    calls = [call(("user", f"q{n}"), system=f"rules {rng.integers(12)} " * 40) for n in range(80)]
    found = curve(lambda: calls, Renderer(), shares=(0.05, 0.2, 0.5))
    rates = {(p.policy, p.share): p.rate for p in found.points}
    for policy in ("lru", "hot"):
        few, some, many = (rates[policy, s] for s in (0.05, 0.2, 0.5))
        assert few <= some <= many <= found.ceiling
    assert rates["lru", 0.05] < found.ceiling
    assert found.distinct > 0 and not found.capped


def test_pages_of_sixteen_lose_a_tail() -> None:
    calls = chat(6)
    rates = {}
    for name in ("agentkv", "sglang", "vllm"):
        replay = Replay(cache_model(name))
        for one in calls:
            hit = replay.call(one, Renderer().render(one))
            assert name != "vllm" or hit.cached % 16 == 0
        rates[name] = replay.total.rate
    assert rates["vllm"] < rates["agentkv"] == rates["sglang"]


def test_openai_serves_nothing_below_its_minimum() -> None:
    short, long = "a few rules. ", "the long rules of the house. "
    for text, served in ((short * 20, False), (long * 400, True)):
        replay = Replay(cache_model("openai"))
        hits = []
        for n in range(2):
            one = call(("user", f"question {n}"), system=text)
            hits.append(replay.call(one, Renderer().render(one)).cached)
        assert hits[0] == 0 and (hits[1] >= 1024) is served
        assert not served or (hits[1] - 1024) % 128 == 0


def test_a_provider_forgets_after_its_time_to_live() -> None:
    text = "the long rules of the house. " * 400
    cached = {}
    for gap in (60, 100_000):
        replay = Replay(cache_model("openai"))
        for n in range(2):
            one = call(("user", f"question {n}"), system=text, time=1e9 + n * gap)
            cached[gap] = replay.call(one, Renderer().render(one)).cached
    assert cached[60] >= 1024 and cached[100_000] == 0


def marked(number: int, marker: int | None, time: float | None = None) -> Call:
    rules = Piece("text", "the long rules of the house. " * 400, marker=marker)
    parts = (
        Part("system", "instructions", "system", (rules,)),
        Part("messages[0]", "question", "user", (Piece("text", f"question {number}"),)),
    )
    return Call(Where("l", number), model="claude-x", provider="anthropic", parts=parts, time=time)


def test_anthropic_serves_what_ends_at_a_marker() -> None:
    for marker, served in ((0, True), (None, False)):
        replay = Replay(cache_model("anthropic"))
        hits = [
            replay.call(one, Renderer().render(one)).cached
            for one in (marked(n, marker) for n in range(2))
        ]
        assert hits[0] == 0 and (hits[1] > 1024) is served


def test_anthropic_keeps_an_entry_five_minutes_or_an_hour() -> None:
    for marker, gap, served in ((0, 200, True), (0, 1000, False), (3600, 1000, True)):
        replay = Replay(cache_model("anthropic"))
        calls = [marked(n, marker, 1e9 + n * gap) for n in range(2)]
        hits = [replay.call(one, Renderer().render(one)) for one in calls]
        assert (hits[1].cached > 0) is served
        assert hits[1].known > 0


def test_llamacpp_has_as_many_memories_as_slots() -> None:
    conversations = [chat(3, name=n, system=f"You are {n} " * 30) for n in ("a", "b", "c")]
    rates = {}
    for slots in (1, 3):
        replay = Replay(cache_model("llamacpp", slots=slots))
        for turn in range(3):
            for talk in conversations:
                replay.call(talk[turn], Renderer().render(talk[turn]))
        rates[slots] = replay.total.rate
    assert rates[1] < 0.2 < rates[3]


def test_models_salts_and_refused_calls_share_nothing() -> None:
    replay = Replay(cache_model())
    one = chat(1)[0]
    hits = [
        replay.call(c, Renderer().render(c)).cached
        for c in (
            replace(one, error="400: too long"),
            one,
            replace(one, model="other"),
            replace(one, salt="tenant"),
            one,
        )
    ]
    assert hits[:4] == [0, 0, 0, 0] and hits[4] > 0
    assert replay.total.requests == 4


def test_within_and_across_add_up() -> None:
    calls = [c for n in ("a", "b") for c in chat(4, name=n, system="shared rules. " * 50)]
    found = split(calls, Renderer())
    assert found.within_rate > 0 and found.across_rate > 0
    assert found.within_rate + found.across_rate == pytest.approx(found.total.rate)


def test_every_target_has_a_model_and_sizes_only_where_they_mean_something() -> None:
    for name in names():
        assert cache_model(name).name
    with pytest.raises(ValueError, match="size of openai"):
        cache_model("openai", size=100)
    with pytest.raises(ValueError, match="unknown target"):
        cache_model("nobody")


def test_policies_of_the_documentation_exist() -> None:
    text = (Path(__file__).parents[2] / "docs" / "trace.md").read_text("utf-8")
    named = [n for m in re.finditer(r"--policy ([\w,]+)", text) for n in m[1].split(",")]
    assert named
    assert set(named) <= set(POLICIES)
