"""Breakpoints, look-back, lives and minimums of providers, and llama.cpp's slots."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agentkv.trace.caches.base import CacheModel, namespace_of
from agentkv.trace.caches.choose import cache_model
from agentkv.trace.caches.target import target
from agentkv.trace.call import Call, Part, Piece, Where
from agentkv.trace.render import Renderer

RENDERER = Renderer()
RULES = "the long rules of the house. " * 400


def served(cache: CacheModel, call: Call) -> int:
    return cache.call(call, RENDERER.render(call), namespace_of(call)).cached


def claude(
    blocks: Sequence[tuple[str, int | None]],
    *,
    rules: int | None = None,
    time: float | None = None,
    model: str = "claude-sonnet-4-5",
    **settings: str,
) -> Call:
    """A system text, then one user message of blocks; each with its marker, or None."""
    return Call(
        Where("l", 1),
        model=model,
        provider="anthropic",
        time=time,
        settings=settings,
        parts=(
            Part("system", "instructions", "system", (Piece("text", RULES, marker=rules),)),
            Part(
                "messages[0]", "question", "user",
                tuple(Piece("text", text, marker=marker) for text, marker in blocks),
            ),
        ),
    )  # fmt: skip


def test_an_entry_is_found_twenty_blocks_in_front_of_a_marker_and_no_further() -> None:
    back = target("anthropic").lookback
    for extra, hit in ((1, True), (back, True), (back + 1, False)):
        cache = cache_model("anthropic")
        first = [("block 0", 0)]
        assert served(cache, claude(first)) == 0
        grown = [("block 0", None)] + [(f"block {n}", None) for n in range(1, extra)]
        cached = served(cache, claude([*grown, (f"block {extra}", 0)]))
        assert (cached > 2000) is hit, extra


def test_nothing_is_served_that_does_not_end_where_an_entry_ends() -> None:
    cache = cache_model("anthropic")
    served(cache, claude([("a question", 0)]))
    # The system text is the same, but no entry ends behind it.
    assert served(cache, claude([("another one", 0)])) == 0
    cache = cache_model("anthropic")
    served(cache, claude([("a question", 0)], rules=0))
    cached = served(cache, claude([("another one", 0)], rules=0))
    assert cached == next(
        p.end for p in RENDERER.render(claude([("x", None)])).pieces if p.part == 0
    )


def test_only_four_markers_count_the_last_ones() -> None:
    cache = cache_model("anthropic")
    many = [(f"block {n}", 0) for n in range(4)]
    served(cache, claude(many, rules=0))  # five markers
    assert served(cache, claude([("other", None)], rules=0)) == 0
    assert served(cache, claude(many[:1])) > 0


def test_use_renews_an_entry() -> None:
    cache = cache_model("anthropic")
    gaps = [served(cache, claude([(f"q{n}", None)], rules=0, time=n * 250.0)) for n in range(5)]
    assert gaps[0] == 0 and all(g > 0 for g in gaps[1:])
    assert served(cache, claude([("q", None)], rules=0, time=4 * 250.0 + 301)) == 0
    hour = cache_model("anthropic")
    assert served(hour, claude([("q", None)], rules=3600, time=0)) == 0
    assert served(hour, claude([("q", None)], rules=3600, time=3000)) > 0
    assert served(hour, claude([("q", None)], rules=3600, time=6500)) > 0
    assert served(hour, claude([("q", None)], rules=3600, time=10_101)) == 0


def test_the_minimum_is_the_models() -> None:
    short = "a few rules of the house. " * 220  # about 1,500 tokens
    for model, hit in (("claude-sonnet-4-5", True), ("claude-haiku-4-5", False)):
        cache = cache_model("anthropic")
        parts = (Part("system", "instructions", "system", (Piece("text", short, marker=0),)),)
        call = Call(Where("l", 1), model=model, parts=parts)
        served(cache, call)
        assert (served(cache, call) > 0) is hit


def test_another_tool_choice_makes_messages_new_and_the_system_text_not() -> None:
    system_only = next(p.end for p in RENDERER.render(claude([("q", None)])).pieces if p.part == 0)
    cache = cache_model("anthropic")
    talk = [("a long block of talk. " * 40, 0)]
    served(cache, claude(talk, rules=0, tool_choice='"auto"'))
    assert served(cache, claude(talk, rules=0, tool_choice='"any"')) == system_only
    assert served(cache, claude(talk, rules=0, tool_choice='"auto"')) > system_only


def gpt(model: str, *said: str, rules: str = RULES, time: float | None = None) -> Call:
    parts = [Part("messages[0]", "instructions", "system", (Piece("text", rules),))]
    for n, text in enumerate(said, 1):
        role = "user" if n % 2 else "assistant"
        parts.append(Part(f"messages[{n}]", "history", role, (Piece("text", text),)))
    return Call(Where("l", 1), model=model, parts=tuple(parts), time=time)


def test_openai_of_old_serves_any_beginning_and_of_late_only_up_to_breakpoints() -> None:
    assert target("openai").exact("gpt-5.6") and not target("openai").exact("gpt-5.1")
    for model, beginning in (("gpt-5.1", True), ("gpt-5.6", False)):
        cache = cache_model("openai")
        served(cache, gpt(model, "one question"))
        assert (served(cache, gpt(model, "another question")) > 0) is beginning
        # A conversation that only grows is found at its newest message in both.
        assert served(cache, gpt(model, "one question", "an answer", "more?")) > 1024


def test_openai_steps_are_counted_from_the_minimum() -> None:
    cache = cache_model("openai")
    served(cache, gpt("gpt-4o", "q"))
    for n in range(5):
        rules = RULES[: 9000 + 37 * n]
        cached = served(cache, gpt("gpt-4o", "q", rules=rules))
        assert cached >= 1024 and (cached - 1024) % 128 == 0


def test_llamacpp_keeps_a_slot_that_fits_and_gives_up_the_oldest() -> None:
    cache = cache_model("llamacpp", slots=2)
    a, b, c = (gpt("m", "hello", rules=f"You are agent {n}. " * 100) for n in "abc")
    assert served(cache, a) == 0
    assert served(cache, b) < 10  # a few tokens may be common, and are kept
    assert served(cache, a) > 300
    served(cache, c)  # takes b's slot
    assert served(cache, a) > 300
    assert served(cache, b) < 10
    with pytest.raises(ValueError, match="at least one slot"):
        cache_model("llamacpp", slots=0)


def test_other_targets_have_their_own_grain() -> None:
    for name, grain in (("deepseek", 64), ("vllm", 16)):
        cache = cache_model(name)
        served(cache, gpt("m", "q"))
        cached = served(cache, gpt("m", "another"))
        assert cached > 1000 and cached % grain == 0
    cache = cache_model("gemini")
    served(cache, gpt("gemini-2.5-pro", "q"))
    assert served(cache, gpt("gemini-2.5-pro", "another")) > 2048
    assert served(cache, gpt("gemini-3-pro", "q")) == 0


def test_what_cannot_be_set_is_refused() -> None:
    with pytest.raises(ValueError, match="policy of gemini's cache cannot be set"):
        cache_model("gemini", policy="lru")
    with pytest.raises(ValueError, match="no policy is called"):
        cache_model("vllm", policy="fifo")
