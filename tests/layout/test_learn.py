"""Level `learn`: proposed by name, moved where it is allowed, at line ends only."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from agentkv.layout import Arrangement, Memory, arrange
from agentkv.prompt import Document, Prompt, static

RULES = "You are the agent of a parcel service.\nBe kind, and be brief.\n"


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(p["text"] for p in content)


class Talk:
    """A session of calls with a growing history."""

    def __init__(self, allow: tuple[str, ...] = (), level: str = "learn") -> None:
        self.memory, self.allow, self.level = Memory(), allow, level
        self.history: list[dict[str, Any]] = []

    def call(self, system: Any, documents: list[Document] | None = None) -> Arrangement:
        self.history.append({"role": "user", "content": f"Question {len(self.history)}?"})
        head = {"role": "system", "content": system}
        laid = arrange(
            Prompt.build([head, *self.history], documents=documents),
            self.level,
            memory=self.memory,
            session="s",
            allow=self.allow,
        )
        self.history.append({"role": "assistant", "content": "An answer. " * 20})
        return laid


def test_a_changing_line_is_proposed_and_not_moved() -> None:
    talk = Talk()
    for k in range(4):
        given = f"Now: 12:0{k}\n{RULES}"
        laid = talk.call(given)
        assert text_of(laid.messages[0]) == given
        assert laid.moves == ()
    (proposal,) = laid.proposals
    assert (proposal.name, proposal.to) == ("messages[0]", "tail")
    assert (proposal.changed, proposal.calls) == (3, 4)
    behind = len(RULES) + sum(len(m["content"]) for m in talk.history[:-1])
    assert abs(proposal.saves - behind / 4) < 20
    assert "allow='messages[0]'" in str(proposal)
    assert laid.to_dict()["proposed"] == [["messages[0]", "tail", proposal.saves, 3, 4]]


def test_where_it_is_allowed_the_line_moves_and_the_head_holds_still() -> None:
    talk = Talk(("messages[0]",))
    heads = []
    for k in range(4):
        laid = talk.call(f"{RULES}Now: 12:0{k}\nSay goodbye nicely.")
        heads.append(text_of(laid.messages[0]))
        assert laid.proposals == ()
    assert len(set(heads[1:])) == 1
    assert heads[1] == f"{RULES}Say goodbye nicely."
    assert 'name="messages[0].changing">\nNow: 12:03\n</context>' in text_of(laid.messages[-1])
    assert laid.messages[-1]["role"] == "user"
    assert laid.tail == ("messages[0].changing",)


def test_static_first_learns_nothing() -> None:
    talk = Talk(("messages[0]",), level="static_first")
    for k in range(4):
        laid = talk.call(f"Now: 12:0{k}\n{RULES}")
    assert (laid.moves, laid.proposals) == ((), ())


def test_guards_hold_for_what_is_learned() -> None:
    talk = Talk(("messages[0]",))
    for k in range(3):
        given = f"1. Be kind.\n2. It is 12:0{k}.\n3. If the time above is late, say so.\n"
        laid = talk.call(given)
        assert text_of(laid.messages[0]) == given
    assert "number 2 of a list" in laid.refused[0].reason


def test_a_rule_that_changes_keeps_its_authority() -> None:
    talk = Talk(("messages[0]",))
    for k in range(3):
        given = f"Never answer after 12:0{k}.\n{RULES}"
        laid = talk.call(given)
        assert text_of(laid.messages[0]) == given
    assert "is a rule" in laid.refused[0].reason


def test_text_of_which_no_line_stays_is_not_moved() -> None:
    talk = Talk(("messages[0]",))
    for k in range(3):
        laid = talk.call(f"Agent {k} of the service.")
    assert laid.moves == ()


def test_a_wrong_mark_is_proposed_and_moved_where_allowed() -> None:
    for allow in ((), ("memory",)):
        talk = Talk(allow)
        for k in range(4):
            laid = talk.call([static(f"Seen {k} minutes ago.", name="memory"), static(RULES)])
        if allow:
            assert laid.tail == ("memory",)
            assert text_of(laid.messages[0]) == RULES
            assert laid.proposals == ()
        else:
            assert laid.tail == ()
            assert [(p.name, p.to) for p in laid.proposals] == [("memory", "tail")]


def test_what_has_moved_stays_moved() -> None:
    """A text that changed at first and then holds still does not wander back."""
    talk = Talk(("memory",))
    for seen in (0, 1, 1, 1, 1, 1):
        laid = talk.call([static(f"Seen {seen} minutes ago.", name="memory"), static(RULES)])
    assert laid.tail == ("memory",)


def test_what_seldom_changes_sinks_by_its_measured_odds() -> None:
    """Changed once in ten calls: too seldom for the tail, too often for the front."""
    talk = Talk(("memory",))
    for k in range(10):
        note = static(f"Ann has {1 + k // 6} parcels.", name="memory")
        laid = talk.call([note, static(RULES), static("More rules. " * 30, name="more")])
    assert [s.name for s in laid.order][:3] == ["instructions", "more", "memory"]
    assert [(m.name, m.to) for m in laid.moves] == [("memory", "behind_static")]


def test_an_order_that_rests_on_measures_holds_still() -> None:
    """The estimate changes with every call; the order does not follow each step of it."""
    talk = Talk(("a", "b"))
    orders = []
    for k in range(40):
        a = static(f"Alpha {k // 7}. " * 12, name="a")
        b = static(f"Beta {k // 9}. " * 15, name="b")
        laid = talk.call([a, b, static(RULES)])
        orders.append([s.name for s in laid.order if s.name in ("a", "b", "instructions")])
    changes = sum(x != y for x, y in pairwise(orders))
    assert changes <= 4
    assert orders[-1][0] == "instructions"


def test_documents_that_come_and_go_are_proposed_and_moved_where_allowed() -> None:
    for allow in ((), ("documents",)):
        talk = Talk(allow)
        for k in range(4):
            docs = [Document("terms", "The terms."), Document(f"hit{k}", f"Found {k}.")]
            laid = talk.call(RULES, docs)
        first = text_of(laid.messages[0])
        assert "The terms." in first
        if allow:
            assert "Found 3." not in first
            assert "Found 3." in text_of(laid.messages[-1])
        else:
            assert "Found 3." in first
            assert [(p.name, p.to) for p in laid.proposals] == [("documents", "tail")]
