"""What a session has shown: tools kept, drift, and texts that are marked static and change."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from agentkv.layout import Arrangement, Memory, arrange
from agentkv.layout import memory as memory_module
from agentkv.layout.site import MAX_KEPT
from agentkv.prompt import Document, Prompt, static, volatile

USER = {"role": "user", "content": "Where is my parcel?"}
RULES = "You are the agent of a parcel service.\nBe kind."
HEAD = {"role": "system", "content": RULES}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "parameters": {"type": "object", "properties": properties}}


def call(
    memory: Memory, *tools: dict[str, Any], head: Any = HEAD, session: str = "s", **kw: Any
) -> Arrangement:
    return arrange(Prompt.build([head, USER], tools), memory=memory, session=session, **kw)


def names(laid: Arrangement) -> list[str]:
    return [t["function"]["name"] for t in laid.tools]


# -- tools that stay ------------------------------------------------------------------------------


def test_a_tool_that_is_missing_now_stays_and_is_masked() -> None:
    memory = Memory()
    first = call(memory, tool("b"), tool("a"), keep_tools=True)
    assert (names(first), first.allowed) == (["a", "b"], None)
    second = call(memory, tool("b"), tool("c"), keep_tools=True)
    assert names(second) == ["a", "b", "c"]
    assert second.allowed == ("b", "c")
    assert second.masked == ("a",)
    assert ("tools.a", "kept") in [(m.name, m.to) for m in second.moves]
    assert second.to_dict()["masked"] == ["a"]
    assert [s.name for s in second.order if s.kind == "tools"] == ["tools.a", "tools.b", "tools.c"]
    none = call(memory, keep_tools=True)
    assert (names(none), none.allowed) == (["a", "b", "c"], ())


def test_without_opting_in_the_list_is_the_callers() -> None:
    memory = Memory()
    call(memory, tool("a"), tool("b"))
    laid = call(memory, tool("b"))
    assert (names(laid), laid.allowed, laid.masked) == (["b"], None, ())


def test_a_late_tool_is_appended() -> None:
    """BFCL's miss_func: a tool appears in the middle of a session."""
    memory = Memory()
    first = call(memory, tool("m"), tool("z"))
    late = call(memory, tool("a"), tool("m"), tool("z"))
    assert names(late) == ["m", "z", "a"]
    assert json.dumps(late.tools[:2]) == json.dumps(first.tools)


def test_the_definition_given_now_counts() -> None:
    memory = Memory()
    call(memory, tool("a", x={"type": "string"}), tool("b"), keep_tools=True)
    laid = call(memory, tool("a", y={"type": "string"}), keep_tools=True)
    assert list(laid.tools[0]["function"]["parameters"]["properties"]) == ["y"]


def test_agents_of_one_session_do_not_get_each_others_tools() -> None:
    memory = Memory()
    planner = {"role": "system", "content": "You plan the work of others.\nOne step a line."}
    call(memory, tool("track"), keep_tools=True)
    laid = call(memory, tool("assign"), head=planner, keep_tools=True)
    assert names(laid) == ["assign"]
    again = call(memory, tool("refund"), keep_tools=True)
    assert set(names(again)) == {"track", "refund"}
    other = call(memory, tool("x"), session="other", keep_tools=True)
    assert names(other) == ["x"]


def test_a_changing_line_does_not_make_another_agent() -> None:
    memory = Memory()
    for k in range(3):
        head = {"role": "system", "content": f"Now: 12:0{k}\n{RULES}"}
        laid = call(memory, tool(f"t{k}"), head=head, keep_tools=True)
    assert names(laid) == ["t0", "t1", "t2"]


def test_kept_tools_are_bounded() -> None:
    memory = Memory()
    call(memory, *(tool(f"t{i}") for i in range(MAX_KEPT)), keep_tools=True)
    laid = call(memory, tool("late"), keep_tools=True)
    assert names(laid) == ["late"], "over the bound, only what is given now"


def test_tool_order_as_given() -> None:
    memory = Memory()
    assert names(call(memory, tool("b"), tool("a"), tool_order="given")) == ["b", "a"]
    assert names(call(memory, tool("c"), tool("a"), tool("b"), tool_order="given")) == [
        *("b", "a", "c")
    ]
    assert names(call(Memory(), tool("b"), tool("a"), session="x")) == ["a", "b"]
    with pytest.raises(ValueError, match="tool_order must be one of name, given"):
        call(memory, tool_order="shuffled")


# -- drift ----------------------------------------------------------------------------------------


def test_a_tool_with_other_bytes_is_warned_of_once_with_the_path() -> None:
    memory = Memory()
    assert call(memory, tool("f", color={"enum": ["red", "blue"]})).warnings == ()
    (said,) = call(memory, tool("f", color={"enum": ["blue", "red"]})).warnings
    assert "tool 'f' had other bytes earlier in this session" in said
    assert "$.function.parameters.properties.color.enum[0]" in said
    assert "Only the order differs" in said
    assert call(memory, tool("f", color={"enum": ["red", "blue"]})).warnings == ()


def test_another_description_is_drift_too() -> None:
    memory = Memory()
    call(memory, {"name": "f", "description": "one"})
    (said,) = call(memory, {"name": "f", "description": "two"}).warnings
    assert "$.function.description" in said
    assert "Only the order" not in said


def test_across_sessions_only_a_change_of_order_is_drift() -> None:
    memory = Memory()
    call(memory, tool("f", x={"enum": [1, 2]}), tool("g"), session="one")
    (said,) = call(memory, tool("f", x={"enum": [2, 1]}), tool("g"), session="two").warnings
    assert "in another session of this process" in said
    call(memory, tool("search", x={}), session="three")
    assert call(memory, tool("search", y={}), session="four").warnings == ()


def test_two_spellings_of_one_tool_are_no_drift() -> None:
    memory = Memory()
    schema = {"type": "object", "properties": {"a": {}}}
    call(memory, {"name": "f", "parameters": schema})
    spelt = {"function": {"inputSchema": schema, "name": "f"}, "type": "function"}
    assert call(memory, spelt).warnings == ()


def test_looking_only_leaves_no_trace() -> None:
    memory = Memory()
    call(memory, tool("f", a={}))
    for _ in range(2):
        assert len(call(memory, tool("f", b={}), remember=False).warnings) == 1
    assert len(call(memory, tool("f", b={})).warnings) == 1
    assert call(memory, tool("g"), session="new", remember=False).warnings == ()
    assert len(memory) == 1


# -- marked static, but changed -------------------------------------------------------------------


def changing(k: int, **mark: Any) -> dict[str, Any]:
    text = f"What is known:\nAnn likes tea.\nLast seen {k} minutes ago."
    return {"role": "system", "content": [static(text, name="memory", **mark), static(RULES)]}


def test_marked_static_but_changed() -> None:
    """B056: the mark is on the volatile block."""
    memory = Memory()
    said = [call(memory, head=changing(k)).warnings for k in range(5)]
    assert said[0] == said[1] == ()
    assert "changed in 4 of 5 calls" in said[4][0]
    assert "'memory' is marked static" in said[4][0]
    assert "line 3: - 'Last seen 3 minutes ago.' + 'Last seen 4 minutes ago.'" in said[4][0]
    assert call(memory, head=changing(4)).warnings == (), "it did not change now"
    laid = call(memory, head=changing(9))
    assert laid.to_dict()["warnings"] == list(laid.warnings)


def test_right_marks_are_not_warned_of() -> None:
    memory = Memory()
    for k in range(5):
        head = {"role": "system", "content": [volatile(f"Now: {k}", name="clock"), static(RULES)]}
        assert call(memory, head=head).warnings == ()


def test_a_session_text_may_be_edited_now_and_then() -> None:
    """B052: memory that is edited at turn 3 is what `session` is for; every turn is not."""
    memory = Memory()
    edits = [0, 0, 0, 1, 1, 1, 2, 2]
    assert not any(call(memory, head=changing(k, stability="session")).warnings for k in edits)
    always = [call(memory, head=changing(k, stability="session"), session="x") for k in range(4)]
    assert "stability session" in always[-1].warnings[0]


def test_two_agents_that_share_a_session_are_told_apart() -> None:
    """B064: planner and worker have a system prompt each, and no drift."""
    memory = Memory()
    heads = [
        {"role": "system", "content": [static("You plan.\nOne step a line.", name="role")]},
        {"role": "system", "content": [static("You do the step.\nSay what came of it.")]},
    ]
    for k in range(8):
        assert call(memory, head=heads[k % 2]).warnings == ()


def test_a_text_that_comes_back_is_no_change() -> None:
    memory = Memory()
    for k in range(8):
        assert call(memory, head=changing(k % 2)).warnings == ()


def test_a_selector_that_changes_the_tools_is_advised() -> None:
    """B071: five of thirty tools each turn: a shorter prompt, and the prefix is lost."""
    memory = Memory()
    said: tuple[str, ...] = ()
    for k in range(5):
        chosen = [tool(f"t{(5 * k + i) % 30:02d}") for i in range(5)]
        said = call(memory, *chosen).warnings
    assert "the set of tools changed in 4 of 5 calls" in said[0]
    assert "tool_choice" in said[0]
    kept = Memory()
    for k in range(5):
        chosen = [tool(f"t{(5 * k + i) % 30:02d}") for i in range(5)]
        assert call(kept, *chosen, keep_tools=True).warnings == ()


# -- bounds and threads ---------------------------------------------------------------------------


def test_texts_are_kept_as_digests_only() -> None:
    """No text of a prompt is reachable from the memory, before it is known to change."""
    memory = Memory()
    head = {"role": "system", "content": [static("SECRET one.\nSECRET two.", name="rules")]}
    prompt = Prompt.build([head, USER], [tool("f")], [Document("d", "SECRET doc")])
    for _ in range(3):
        arrange(prompt, memory=memory, session="s")
    state = repr(memory._sessions) + repr(memory._defined)
    assert "SECRET" not in state
    assert "parcel" not in state


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(sessions=3)
    for k in range(10):
        head = {"role": "system", "content": f"Agent {'x' * k}.\nOther {k}{'y' * k}."}
        call(memory, tool("a"), head=head, session=f"s{k}")
    assert len(memory) == 3
    monkeypatch.setattr(memory_module, "MAX_SITES", 2)
    for k in range(5):
        call(memory, head={"role": "system", "content": "word " * (k + 1) + "x" * k}, session="s")
    assert len(memory._sessions["s"].sites) == 2
    monkeypatch.setattr(memory_module, "MAX_ITEMS", 4)
    for k in range(10):
        call(memory, tool(f"tool{k}"), session="s")
    assert len(memory._defined) <= 4


def test_many_threads() -> None:
    memory = Memory(sessions=4)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for k in range(40):
                head = {"role": "system", "content": f"Now: {k}\n{RULES}"}
                laid = call(
                    memory,
                    tool(f"t{(k + seed) % 7}"),
                    head=head,
                    session=f"s{(k + seed) % 6}",
                    keep_tools=True,
                    level="learn",
                    allow=("messages[0]",),
                )
                assert f"t{(k + seed) % 7}" in names(laid)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(memory) <= 4
