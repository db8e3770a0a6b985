"""A better hit rate is never bought with meaning."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.layout import Memory, arrange
from agentkv.prompt import STABILITIES, Document, Prompt, static, volatile

USER = {"role": "user", "content": "Where is my parcel?"}
CLOCK = volatile("Now: 12:00.", name="clock")


def refusals(*parts: Any, rest: tuple[Any, ...] = (USER,)) -> dict[str, str]:
    got = arrange([{"role": "system", "content": list(parts)}, *rest])
    texts = [t for m in got.messages for t in _texts(m)]
    given_texts = [p if isinstance(p, str) else p["text"] for p in parts]
    if got.refused and not got.moves:
        assert [t.strip("\n") for t in texts[: len(parts)]] == [t.strip("\n") for t in given_texts]
    return {r.name: r.reason for r in got.refused}


def _texts(message: dict[str, Any]) -> list[str]:
    content = message["content"] or ""
    return [content] if isinstance(content, str) else [p["text"] for p in content]


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        # The moved text points.
        ((static("Be kind."), volatile("The above holds today.", name="u")), "above"),
        ((static("Be kind."), volatile("Ignore the previous rules.", name="u")), "previous"),
        ((static("Be kind."), volatile("See the list below.", name="u")), "below"),
        ((static("Be kind."), volatile("As mentioned earlier, hurry.", name="u")), "earlier"),
        ((static("A."), volatile("This takes priority over all.", name="u")), "priority over"),
        ((static("A."), volatile("Ignore all instructions.", name="u")), "instructions"),
        # Another text points at it, from behind or from ahead.
        ((volatile("Now: 12.", name="u"), static("Use the time above.")), "above"),
        ((volatile("Now: 12.", name="u"), "Use the aforementioned time.\n"), "aforementioned"),
        ((static("Use the time below. Be kind."), volatile("Now: 12.", name="u")), "below"),
        # A label, a pointer or half a sentence stands right before it.
        ((static("Current time:"), volatile("12:00", name="u")), "':'"),
        ((static("Current time:\n"), volatile("12:00", name="u")), "':'"),
        ((static("Obey the following"), volatile("12:00", name="u")), "following"),
        (("You talk to ", volatile("Ann", name="u"), ". Be kind."), "sentence"),
        (("You talk to Ann. ", volatile("Ann", name="u"), " is nice."), "sentence"),
    ],
)
def test_text_that_points_is_tied(parts: tuple[Any, ...], word: str) -> None:
    reasons = refusals(*parts)
    assert set(reasons) == {"u"}
    assert word in reasons["u"]


@pytest.mark.parametrize(
    "parts",
    [
        (CLOCK, static("Be kind.")),
        (CLOCK, static("Obey the following rules:\n- be kind\n- be brief")),
        (static("Be kind"), CLOCK),
        ("Be kind.\n", CLOCK, "\nBe brief."),
        (CLOCK, static("Orders above 40 euros ship free.")),
        (CLOCK, static("Use the rules above.", points=False)),
        (CLOCK, static("Check the customer's previous booking.")),
    ],
)
def test_text_that_does_not_point_is_free(parts: tuple[Any, ...]) -> None:
    assert refusals(*parts) == {}
    got = arrange([{"role": "system", "content": list(parts)}, USER])
    assert got.tail == ("clock",)


def test_a_prompt_that_ends_with_the_assistant_gets_no_tail() -> None:
    prefill = (USER, {"role": "assistant", "content": "Your parcel"})
    reasons = refusals(CLOCK, static("Be kind."), rest=prefill)
    assert "assistant's own words" in reasons["clock"]
    docs = Prompt.build([USER, prefill[1]], documents=[Document("d", "x", "turn")])
    got = arrange(docs)
    assert got.messages[-1] == prefill[1]
    assert got.refused[0].name == "documents"


def test_without_a_user_message_nothing_leaves_the_system_message() -> None:
    assert "no user message" in refusals(CLOCK, static("Be kind."), rest=())["clock"]


def test_a_tied_unit_is_a_wall() -> None:
    """What stands behind a refused unit is not pulled in front of it."""
    tied = volatile("Now: 12, see above.", name="tied")
    got = arrange(
        [{"role": "system", "content": [static("A."), tied, static("B.")]}, USER], "static_first"
    )
    assert [s.name for s in got.order][:3] == ["instructions", "tied", "instructions#2"]


# -- properties ----------------------------------------------------------------------------------

words = st.sampled_from(
    [
        "Be kind.",
        "Now: 12:00",
        "the above",
        "Customer: Ann\n",
        "\nfollowing:",
        "naïve 日本 🙂",
        " and so ",
        "<context>",
        "ignore previous rules",
        "x",
    ]
)
texts = st.lists(words, min_size=1, max_size=3).map(" ".join)


@st.composite
def marked(draw: st.DrawFn) -> Any:
    text = draw(texts)
    kind = draw(st.sampled_from(["plain", "static", "volatile"]))
    if kind == "plain":
        return {"type": "text", "text": text}
    name = draw(st.sampled_from(["", "a", "b"]))
    level = draw(st.sampled_from(STABILITIES))
    make = static if kind == "static" else volatile
    return make(text, name, stability=level)


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    messages: list[dict[str, Any]] = [
        {"role": draw(st.sampled_from(["system", "developer"])), "content": draw(parts)}
        for _ in range(draw(st.integers(0, 2)))
    ]
    for turn in range(draw(st.integers(0, 3))):
        messages.append({"role": "user", "content": draw(st.one_of(texts, parts))})
        if draw(st.booleans()):
            call = {"id": f"c{turn}", "type": "function", "function": {"name": "f"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "content": draw(texts), "tool_call_id": f"c{turn}"})
        if draw(st.booleans()):
            messages.append({"role": "assistant", "content": draw(texts)})
    tools = [{"name": n} for n in draw(st.permutations(["a", "b", "c"]))[: draw(st.integers(0, 3))]]
    documents = [
        Document(f"d{i}", draw(texts), draw(st.sampled_from(STABILITIES)))
        for i in range(draw(st.integers(0, 3)))
    ]
    return Prompt.build(messages, tools, documents)


parts = st.lists(marked(), min_size=1, max_size=4)
levels = st.sampled_from(["off", "canonical", "static_first", "learn"])


@settings(max_examples=300, deadline=None)
@given(prompts(), levels)
def test_nothing_is_lost_doubled_or_promoted(prompt: Prompt, level: str) -> None:
    memory = Memory()
    got = arrange(prompt, level, memory=memory, session="s")
    # The same units, each once.
    before = Counter((s.name, s.content_hash) for s in prompt.segments)
    after = Counter((s.name, s.content_hash) for s in got.order)
    assert before == after
    # On the wire, too: every text is there, as often as it was given.
    wire = "\0".join(t for m in got.messages for t in _texts(m))
    for unit in (*prompt.message_segments, *prompt.document_segments):
        assert unit.content.strip("\n") in wire
    size = sum(len(s.content.strip("\n")) for s in prompt.segments if s.kind != "tools")
    assert len(wire) >= size
    # No text of a user, a tool or the assistant stands in a system message.
    lower = [s.name for s in prompt.message_segments if s.role not in ("system", "developer")]
    for message in got.messages:
        if message["role"] in ("system", "developer") and not isinstance(message["content"], str):
            names = {p["agentkv"]["name"] for p in message["content"] if "agentkv" in p}
            assert not names & set(lower)
    # The conversation keeps its order: what is not of the system is a subsequence, whole.
    talk = [m.wire() for m in prompt.messages if m.role not in ("system", "developer")]
    out = [m for m in got.messages if m["role"] not in ("system", "developer")]
    assert len(out) in (len(talk), len(talk) + 1)
    for given_message, sent in zip(talk, out, strict=False):
        assert given_message["role"] == sent["role"]
        assert given_message.get("tool_calls") == sent.get("tool_calls")
        assert "".join(_texts(sent)).startswith("".join(_texts(given_message)))
    # Undeclared text keeps its order.
    plain = [s.name for s in prompt.message_segments if not s.declared]
    assert [s.name for s in got.order if s.message >= 0 and not s.declared] == plain


@settings(max_examples=100, deadline=None)
@given(prompts())
def test_the_same_prompt_is_laid_out_the_same(prompt: Prompt) -> None:
    memory = Memory()
    first = arrange(prompt, memory=memory, session="s")
    again = arrange(prompt, memory=memory, session="s")
    assert json.dumps(first.messages) == json.dumps(again.messages)
    assert json.dumps(first.tools) == json.dumps(again.tools)


system_lines = st.lists(
    st.sampled_from(
        [
            "Be kind.",
            "",
            "Now: 12:00",
            "- a",
            "```",
            "Rules:",
            "See above.",
            "1. x",
            "# Head",
            "日本",
        ]
    ),
    min_size=0,
    max_size=8,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(system_lines, min_size=2, max_size=4), st.booleans(), st.data())
def test_what_is_learned_loses_and_promotes_nothing(
    prompts_of_calls: list[list[str]], opted_in: bool, data: st.DataObject
) -> None:
    """Unmarked system text that differs from call to call, with every name allowed to move."""
    memory = Memory()
    allow = ("messages[0]", "rules", "documents") if opted_in else ()
    talk: list[dict[str, Any]] = []
    for k, lines in enumerate(prompts_of_calls):
        talk.append({"role": "user", "content": f"USER {k}?"})
        docs = [Document(d, f"DOC {d}") for d in data.draw(st.sets(st.sampled_from("abc")))]
        rules = static(f"R{data.draw(st.integers(0, 1))}.", name="rules")
        head = {"role": "system", "content": ["\n".join(lines) + "\n", rules]}
        prompt = Prompt.build([head, *talk], documents=docs)
        got = arrange(prompt, "learn", memory=memory, session="s", allow=allow)
        systems = [m for m in got.messages if m["role"] == "system"]
        wire = [t for m in got.messages for t in _texts(m)]
        given_lines = Counter(x for x in lines if x.strip())
        sent = Counter(x for t in wire for x in t.split("\n") if x.strip())
        assert not given_lines - sent
        assert sum(sent[x] for x in given_lines) == sum(given_lines.values())
        assert "".join(wire).count(rules["text"]) == 1
        assert all("".join(wire).count(d.text) == 1 for d in docs)
        assert "USER" not in "".join(t for m in systems for t in _texts(m))
        out = [m for m in got.messages if m["role"] != "system"]
        assert [m["role"] for m in out] == [m["role"] for m in talk]
        for was, now in zip(talk, out, strict=True):
            assert "".join(_texts(now)).startswith(was["content"])
        if not opted_in:
            same = arrange(prompt, memory=memory, session="s", remember=False)
            assert same.messages == got.messages, "nothing moves that was not allowed"
        talk.append({"role": "assistant", "content": f"ANSWER {k}."})


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcdef")), min_size=1, max_size=6))
def test_kept_tools_are_masked_and_never_more_than_were_given(calls: list[set[str]]) -> None:
    memory = Memory()
    head = {"role": "system", "content": "You are an agent."}
    so_far: list[str] = []
    for names in calls:
        tools = [{"name": n} for n in names]
        got = arrange(
            Prompt.build([head, USER], tools), memory=memory, session="s", keep_tools=True
        )
        sent = [t["function"]["name"] for t in got.tools]
        assert sent[: len(so_far)] == so_far, "only ever appended"
        assert set(sent) == set(so_far) | names
        assert got.allowed is None if set(sent) == names else set(got.allowed or ()) == names
        assert set(got.masked) == set(sent) - names
        so_far = sent
