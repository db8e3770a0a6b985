"""Each reason of a miss, planted; and the healthy cases that must not be called a loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from agentkv.engine.kv.tree import Namespace
from agentkv.engine.types import Miss, RenderedPrompt, Span
from agentkv.engine.why import (
    PER_SESSION,
    SESSIONS,
    Earlier,
    Explainer,
    Whereabouts,
    compare,
)

NS = (("salt", None),)


@dataclass(frozen=True)
class Part:
    name: str
    kind: str
    text: str
    stability: str | None = None
    items: tuple[str, ...] = ()


def prompt(*parts: Part) -> RenderedPrompt:
    """One token a character; the code point is the id."""
    spans: list[Span] = []
    ids: list[int] = []
    for part in parts:
        spans.append(
            Span(
                name=part.name,
                kind=part.kind,
                start=len(ids),
                end=len(ids) + len(part.text),
                stability=part.stability,
                digest=part.text,
                items=part.items,
            )
        )
        ids += [ord(c) for c in part.text]
    return RenderedPrompt(token_ids=np.array(ids, dtype=np.int32), spans=tuple(spans), text="x")


TOOLS = Part("tools", "tools", "[alpha][beta][gamma]", items=("alpha", "beta", "gamma"))
SYSTEM = Part("messages[0]", "instructions", "You are helpful. ")
GEN = Part("generation_prompt", "template", "<assistant>")


def user(i: int, text: str, kind: str = "question") -> Part:
    return Part(f"messages[{i}]", kind, f"<user>{text}</user>")


class Session:
    """Feeds an explainer with prompts as an engine would: what is cached is what was common."""

    def __init__(self, page: int = 1) -> None:
        self.explainer = Explainer(
            lambda ids: "".join(chr(i) for i in ids.tolist()), whereabouts=Whereabouts()
        )
        self.page = page
        self.cached: list[np.ndarray] = []

    def call(
        self,
        p: RenderedPrompt,
        output: str = "",
        *,
        session: str | None = "s",
        namespace: Namespace = NS,
        lose: bool = False,
    ) -> Miss | None:
        ids = p.token_ids
        best = 0
        for old in self.cached:
            n = min(len(old), len(ids))
            same = int((np.append(old[:n] != ids[:n], True)).argmax())
            best = max(best, same)
        known = min(best, len(ids) - 1) // self.page * self.page
        matched = 0 if lose else known
        verdict, record = self.explainer.explain(
            p,
            namespace=namespace,
            session=session,
            matched=matched,
            known=known,
            page_size=self.page,
        )
        full = np.concatenate([ids, np.array([ord(c) for c in output], dtype=np.int32)])
        self.explainer.finished(record, full, len(full))
        self.cached.append(full)
        return verdict.miss


def reason(miss: Miss | None) -> str:
    assert miss is not None
    return miss.reason


def test_first_call_and_the_healthy_case() -> None:
    s = Session()
    assert reason(s.call(prompt(TOOLS, SYSTEM, user(1, "hi"), GEN), "hello")) == "first_call"
    grown = prompt(
        TOOLS,
        SYSTEM,
        user(1, "hi", "history"),
        Part("messages[2]", "history", "<assistant>hello"),
        user(3, "more"),
        GEN,
    )
    miss = s.call(grown, "yes")
    assert reason(miss) == "appended" and miss is not None and miss.segment == "messages[3]"
    assert s.call(grown) is None, "the same prompt again: nothing more could be reused"


def test_a_scripted_assistant_turn_in_place_of_the_answer_is_appending() -> None:
    s = Session()
    s.call(prompt(TOOLS, SYSTEM, user(1, "hi"), GEN), "I do not know")
    scripted = Part("messages[2]", "history", "<assistant><tool_call>")
    again = prompt(TOOLS, SYSTEM, user(1, "hi", "history"), scripted, user(3, "result"), GEN)
    # The question of the last call became history: same text, other kind.
    assert reason(s.call(again)) == "appended"


def test_a_clock_in_the_system_message() -> None:
    s = Session()
    clock = [Part("messages[0]", "instructions", f"It is 12:0{i}. Be kind.") for i in range(2)]
    s.call(prompt(TOOLS, clock[0], user(1, "hi"), GEN))
    miss = s.call(prompt(TOOLS, clock[1], user(1, "hi"), GEN))
    assert miss is not None and miss.reason == "text_changed"
    assert miss.segment == "messages[0]"
    assert "12:00" in (miss.was or "") and "12:01" in (miss.now or "")


def test_the_system_message_in_place_of_the_template_s_own() -> None:
    """The caller wrote it, so it is no other way of the template to write the same."""
    own = Part("preamble", "template", "You are a machine. ")
    for first, then in ((own, SYSTEM), (SYSTEM, own)):
        s = Session()
        s.call(prompt(first, user(0, "hi"), GEN))
        assert reason(s.call(prompt(then, user(1, "ho"), GEN))) == "text_changed"


def test_tool_order_and_tool_set() -> None:
    shuffled = Part("tools", "tools", "[beta][alpha][gamma]", items=("beta", "alpha", "gamma"))
    fewer = Part("tools", "tools", "[alpha][gamma]", items=("alpha", "gamma"))
    reworded = Part("tools", "tools", "[alpha!][beta][gamma]", items=("alpha", "beta", "gamma"))
    for other, expected, detail in (
        (shuffled, "tool_order", "tool 1 was alpha, is beta"),
        (fewer, "tool_changed", "removed beta"),
        (reworded, "tool_changed", None),
    ):
        s = Session()
        s.call(prompt(TOOLS, SYSTEM, user(1, "hi"), GEN))
        miss = s.call(prompt(other, SYSTEM, user(1, "hi"), GEN))
        assert miss is not None and (miss.reason, miss.detail) == (expected, detail)
        assert miss.segment == "tools"


def test_document_order() -> None:
    docs = [Part(f"doc{c}", "documents", f"<{c * 5}>", items=(c,)) for c in "ABC"]
    s = Session()
    s.call(prompt(SYSTEM, *docs, user(1, "q1"), GEN))
    miss = s.call(prompt(SYSTEM, docs[0], docs[2], docs[1], user(1, "q2"), GEN))
    assert miss is not None and miss.reason == "document_order"
    assert miss.token == len("You are helpful. <AAAAA><"), "only the true common prefix is claimed"


def test_history_edited_and_truncated() -> None:
    turns = [user(i, f"turn {i}", "history") for i in range(1, 6)]
    s = Session()
    s.call(prompt(SYSTEM, *turns, GEN))
    edited = [turns[0], user(2, "TURN 2", "history"), *turns[2:]]
    assert reason(s.call(prompt(SYSTEM, *edited, user(6, "go"), GEN))) == "history_edited"
    s = Session()
    s.call(prompt(SYSTEM, *turns, GEN))
    assert reason(s.call(prompt(SYSTEM, *turns[2:], user(6, "go"), GEN))) == "history_truncated"


def test_reasoning_stripped_and_retokenized() -> None:
    ask = prompt(SYSTEM, user(1, "hi"), GEN)

    def next_turn(answer: str) -> RenderedPrompt:
        said = Part("messages[2]", "history", "<assistant>" + answer)
        return prompt(SYSTEM, user(1, "hi", "history"), said, user(3, "and?"), GEN)

    s = Session()
    s.call(ask, "<think>hmm</think>Yes.")
    assert reason(s.call(next_turn("Yes."))) == "reasoning_stripped"


def test_evicted() -> None:
    s = Session()
    p = prompt(SYSTEM, user(1, "hi"), GEN)
    s.call(p)
    miss = s.call(p, lose=True)
    assert reason(miss) == "evicted" and miss is not None and miss.token == 0


def test_other_namespace() -> None:
    s = Session()
    p = prompt(SYSTEM, user(1, "hi"), GEN)
    s.call(p, namespace=(("salt", "a"),))
    s.cached.clear()
    assert reason(s.call(p, namespace=(("salt", "b"),))) == "other_namespace"


@pytest.mark.parametrize("page", [16, 32])
def test_sub_page_tail(page: int) -> None:
    s = Session(page)
    p = prompt(SYSTEM, user(1, "hello there"), GEN)
    s.call(p)
    miss = s.call(p)
    assert reason(miss) == "sub_page_tail"


def test_declared_volatile_text_at_the_end_is_no_loss() -> None:
    s = Session()
    now = [Part("clock", "context", f"[now 12:0{i}]", "call") for i in range(2)]
    s.call(prompt(TOOLS, SYSTEM, user(1, "hi"), now[0], GEN), "hello")
    miss = s.call(
        prompt(
            TOOLS,
            SYSTEM,
            user(1, "hi", "history"),
            Part("messages[2]", "history", "<assistant>hello"),
            user(3, "more"),
            now[1],
            GEN,
        )
    )
    assert reason(miss) == "appended"


def test_without_a_session_the_most_similar_prompt_is_compared() -> None:
    s = Session()
    s.call(prompt(TOOLS, SYSTEM, user(1, "first question"), GEN), session=None)
    s.call(prompt(TOOLS, SYSTEM, user(1, "other talk"), GEN), session=None)
    grown = prompt(
        TOOLS,
        SYSTEM,
        user(1, "first question", "history"),
        Part("messages[2]", "history", "<assistant>yes"),
        user(3, "more"),
        GEN,
    )
    assert reason(s.call(grown, session=None)) == "appended"
    new = prompt(TOOLS, SYSTEM, user(1, "something new"), GEN)
    assert reason(s.call(new, session=None)) == "first_call"


def test_memory_is_bounded() -> None:
    s = Session()
    for i in range(SESSIONS + 50):
        s.explainer.explain(
            prompt(user(0, str(i))), namespace=NS, session=str(i), matched=0, known=0, page_size=1
        )
    assert len(s.explainer._sessions) == SESSIONS
    for i in range(PER_SESSION + 5):
        s.explainer.explain(
            prompt(user(0, str(i))), namespace=NS, session="one", matched=0, known=0, page_size=1
        )
    assert len(s.explainer._sessions[NS, "one"]) == PER_SESSION


def test_compare_is_the_same_without_an_engine() -> None:
    """What logs are judged with: the reason, and the token at which the two part."""
    old = prompt(TOOLS, Part("messages[0]", "instructions", "It is 12:00."), user(1, "hi"), GEN)
    new = prompt(TOOLS, Part("messages[0]", "instructions", "It is 12:01."), user(1, "hi"), GEN)
    found = compare(new, Earlier(old.token_ids, old.spans))
    at = len(TOOLS.text) + len("It is 12:0")
    assert (found.reason, found.at) == ("text_changed", at)
    grown = prompt(
        TOOLS, SYSTEM, user(1, "hi", "history"), Part("messages[2]", "history", "<assistant>x")
    )
    before = prompt(TOOLS, SYSTEM, user(1, "hi"), GEN)
    assert compare(grown, Earlier(before.token_ids, before.spans)).reason == "appended"
    bare = compare(RenderedPrompt(token_ids=new.token_ids), Earlier(old.token_ids))
    assert (bare.reason, bare.at) == ("text_changed", at)
