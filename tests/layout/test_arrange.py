"""Where things go, level by level."""

from __future__ import annotations

from typing import Any

import pytest

from agentkv.layout import Arrangement, Memory, arrange, conversation_key
from agentkv.prompt import Document, Prompt, static, volatile

RULES = "You are a support agent."
USER = {"role": "user", "content": "Where is my parcel?"}


def system(*parts: Any) -> dict[str, Any]:
    return {"role": "system", "content": list(parts)}


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content)


def moved(arrangement: Arrangement) -> list[tuple[str, str]]:
    return [(m.name, m.to) for m in arrangement.moves]


def test_off_sends_what_was_given() -> None:
    given = [system(volatile("Now: 1.", name="clock"), static(RULES)), USER]
    tools = [{"name": "b"}, {"name": "a"}]
    got = arrange(Prompt.build(given, tools), "off")
    assert got.messages == tuple(given)
    assert got.tools == tuple(tools)
    assert got.to_dict() == {"level": "off", "moved": [], "refused": []}


def test_canonical_orders_tools_and_moves_no_text() -> None:
    given = [system(volatile("Now: 1.", name="clock"), static(RULES)), USER]
    got = arrange(Prompt.build(given, [{"name": "b"}, {"name": "a"}]), "canonical")
    assert got.messages == tuple(given)
    assert [t["function"]["name"] for t in got.tools] == ["a", "b"]
    assert moved(got) == [("tools", "stable_order")]


def test_volatile_text_goes_behind_the_question() -> None:
    got = arrange([system(volatile("Now: 1.", name="clock"), static(RULES)), USER])
    assert text_of(got.messages[0]) == RULES
    tail = text_of(got.messages[1])
    assert tail.startswith("Where is my parcel?")
    assert tail.endswith('<context name="clock">\nNow: 1.\n</context>')
    assert moved(got) == [("clock", "tail")]
    assert [s.name for s in got.order] == ["instructions", "messages[1]", "clock"]
    assert got.messages[1]["content"][-1]["agentkv"] == {
        "name": "clock",
        "kind": "context",
        "stability": "call",
    }


def test_in_a_tool_loop_it_goes_behind_the_tool_result() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    given = [
        system(static(RULES), volatile("Now: 1.", name="clock")),
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "shipped", "tool_call_id": "1"},
    ]
    got = arrange(given)
    assert list(got.messages[1:4]) == given[1:]
    assert got.messages[4]["role"] == "user"
    assert "Now: 1." in text_of(got.messages[4])


def test_the_history_stays_the_same_from_call_to_call() -> None:
    """All of the last prompt but its block is the head of the next one."""
    history: list[dict[str, Any]] = []
    last: list[dict[str, Any]] = []
    for k in range(4):
        history.append({"role": "user", "content": f"question {k}?"})
        head = system(static(RULES), volatile(f"Now: {k}.", name="clock"))
        now = list(arrange([head, *history]).messages)
        for before, after in zip(last, now, strict=False):
            kept = text_of(before).split(" \n\n<context")[0]
            assert text_of(after).startswith(kept)
            assert before["role"] == after["role"]
        last = now
        history.append({"role": "assistant", "content": f"answer {k}."})


def test_slow_context_stays_in_the_system_message_behind_what_is_slower() -> None:
    customer = volatile("Customer: Ann.", name="customer", kind="memory", stability="session")
    got = arrange([system(customer, static(RULES)), USER])
    assert text_of(got.messages[0]) == f"{RULES}\n\nCustomer: Ann."
    assert moved(got) == [("customer", "behind_static")]


def test_undeclared_text_never_moves() -> None:
    got = arrange([system("A.\n", static("B.\n"), "C.\n"), USER])
    assert text_of(got.messages[0]) == "A.\nB.\nC.\n"
    assert moved(got) == []


def test_marks_in_user_messages_stay() -> None:
    """The framework's history holds them, so moving one would change the next call's history."""
    user = {"role": "user", "content": [volatile("Now: 1.", name="clock"), "And?"]}
    got = arrange([system(static(RULES)), user])
    assert text_of(got.messages[1]) == "Now: 1.And?"
    assert moved(got) == []


def test_a_system_message_that_is_all_volatile_is_left_out() -> None:
    got = arrange([system(volatile("Now: 1.", name="clock")), USER])
    assert [m["role"] for m in got.messages] == ["user"]
    assert "Now: 1." in text_of(got.messages[0])


def test_documents_go_where_their_stability_says() -> None:
    docs = [Document("t", "of this turn", "turn"), Document("s", "of the session")]
    head = system(static(RULES), volatile("Ann.", name="customer", stability="session"))
    got = arrange(Prompt.build([head, USER], documents=docs))
    parts = got.messages[0]["content"]
    assert [p["agentkv"]["name"] for p in parts] == ["instructions", "documents", "customer"]
    assert parts[1]["agentkv"]["items"] == ["s"]
    assert "of this turn" in text_of(got.messages[1])
    assert ("documents.turn", "tail") in moved(got)


def test_documents_without_a_system_message_make_one() -> None:
    for level in ("off", "canonical", "static_first"):
        got = arrange(Prompt.build([USER], documents=["some text"]), level)
        assert [m["role"] for m in got.messages] == ["system", "user"]
        assert text_of(got.messages[0]).startswith("<documents>")


def test_known_documents_keep_their_places_and_new_ones_are_appended() -> None:
    memory = Memory()

    def ids(*names: str, remember: bool = True) -> list[str]:
        prompt = Prompt.build([USER], documents=[Document(n, f"text {n}") for n in names])
        got = arrange(prompt, memory=memory, session="s", remember=remember)
        return [s.items[0] for s in got.order if s.kind == "documents"]

    assert ids("b", "a") == ["b", "a"]
    assert ids("a", "c", "b") == ["b", "a", "c"]
    assert ids("d", "c", remember=False) == ["c", "d"]
    assert ids("c", "e") == ["c", "e"]
    assert ids("e", "d", "b") == ["b", "e", "d"]


def test_tools_by_name_at_the_start_then_as_first_seen() -> None:
    memory = Memory()

    def names(*given: str, session: str = "s") -> list[str]:
        prompt = Prompt.build([USER], [{"name": n} for n in given])
        got = arrange(prompt, memory=memory, session=session)
        return [t["function"]["name"] for t in got.tools]

    assert names("m", "z", "b") == ["b", "m", "z"]
    assert names("z", "a", "b", "m") == ["b", "m", "z", "a"]
    assert names("a", "z") == ["z", "a"]
    assert names("a", "z", session="other") == ["a", "z"]


def test_memory_is_bounded_and_forgets_the_least_recent() -> None:
    memory = Memory(sessions=2)
    for name in ("one", "two", "three"):
        memory.tools(name, ["z"])
        memory.documents(name, ["z"])
    assert len(memory) == 2
    assert memory.tools("one", ["z", "a"]) == [1, 0], "forgotten: by name again"
    assert memory.tools("three", ["a", "z"]) == [1, 0], "remembered: z was first"
    memory.forget("three")
    assert memory.tools("three", ["a", "z"]) == [0, 1]


def test_the_conversation_key_is_the_first_user_message() -> None:
    first = [system(volatile("Now: 1.")), USER]
    grown = [system(volatile("Now: 2.")), USER, {"role": "assistant", "content": "x"}]
    assert conversation_key(Prompt.build(first)) == conversation_key(Prompt.build(grown))
    assert conversation_key(Prompt.build([system("x")])) is None


def test_unknown_levels_are_refused() -> None:
    with pytest.raises(ValueError, match="layout must be one of off, canonical, static_first"):
        arrange([USER], "fast")


def test_shuffled_mcp_tools_give_the_same_prompt(traces: Any) -> None:
    """B070: 117 tools of a real MCP server in another order each time, and a reconnect."""
    import json
    import random

    tools = json.loads((traces / "tools" / "github_mcp_tools.json").read_text())
    assert len(tools) > 100
    memory, shuffle = Memory(), random.Random(5)
    seen = set()
    for k in range(10):
        shuffle.shuffle(tools)
        if k == 7:
            tools = tools[20:] + tools[:20]
        got = arrange(Prompt.build([USER], tools), memory=memory, session="mcp")
        seen.add(json.dumps(got.tools))
    assert len(seen) == 1
