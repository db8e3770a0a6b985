"""A prompt as segments: marks, names, and one form for one content."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from agentkv.prompt import Document, Prompt, as_documents, canonical_json, static, volatile


def test_marks_make_units_and_plain_text_is_joined() -> None:
    prompt = Prompt.build(
        [
            {
                "role": "system",
                "content": [
                    "You are ",
                    {"type": "text", "text": "kind."},
                    volatile("Now: 12:00", name="clock"),
                    static("Rules."),
                ],
            },
            {"role": "user", "content": "hi"},
        ]
    )
    assert [(s.name, s.content, s.declared) for s in prompt.message_segments] == [
        ("messages[0]", "You are kind.", False),
        ("clock", "Now: 12:00", True),
        ("instructions", "Rules.", True),
        ("messages[1]", "hi", False),
    ]
    assert [s.kind for s in prompt] == ["instructions", "context", "instructions", "question"]
    assert [s.stability for s in prompt] == ["build", "call", "build", "turn"]


def test_only_the_last_user_message_is_the_question() -> None:
    roles = ["user", "assistant", "user", "assistant", "tool"]
    prompt = Prompt.build([{"role": r, "content": "x"} for r in roles])
    assert [s.kind for s in prompt] == ["history", "history", "question", "history", "history"]


def test_text_and_blocks_give_the_same_message() -> None:
    plain = Prompt.build([{"role": "user", "content": "one two"}])
    blocks = Prompt.build(
        [{"role": "user", "content": [{"type": "text", "text": t} for t in ("one ", "two")]}]
    )
    assert plain.messages[0].wire() == blocks.messages[0].wire()
    assert plain.digest == blocks.digest


def test_wire_keeps_calls_ids_null_and_unknown_parts() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    given: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "", "tool_call_id": "c1"},
        {"role": "user", "content": [image, {"type": "text", "text": "what?"}]},
    ]
    assert [m.wire() for m in Prompt.build(given).messages] == given


def test_names_are_unique() -> None:
    parts = [volatile("a", name="x"), volatile("b", name="x"), volatile("c", name="x#2")]
    prompt = Prompt.build([{"role": "system", "content": parts}])
    names = [s.name for s in prompt]
    assert len(set(names)) == 3
    assert names[0] == "x"


def test_a_typed_block_carries_its_mark_under_extras() -> None:
    mark = volatile("now", name="clock")
    block = {"type": "text", "text": "now", "extras": {"agentkv": mark["agentkv"]}}
    assert Prompt.build([{"role": "system", "content": [block]}]).segments[0].name == "clock"


@pytest.mark.parametrize(
    "message", [{"content": "x"}, {"role": "user", "content": 3}, {"role": "user", "content": [3]}]
)
def test_malformed_messages_are_refused(message: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"messages\[0\]"):
        Prompt.build([message])


def test_marks_refuse_unknown_levels() -> None:
    with pytest.raises(ValueError, match="stability must be one of build"):
        volatile("x", stability="hourly")
    with pytest.raises(ValueError, match="kind must be one of"):
        static("x", kind="prose")
    with pytest.raises(TypeError):
        static(3)  # type: ignore[arg-type]


def test_documents_from_what_callers_have() -> None:
    class Found:
        page_content = "text c"
        id = "c"

    got = as_documents(
        [Document("a", "text a"), "text b", Found(), {"id": "d", "text": "t", "stability": "turn"}]
    )
    assert [d.id for d in got] == ["a", as_documents(["text b"])[0].id, "c", "d"]
    assert [d.stability for d in got] == ["session", "session", "session", "turn"]
    assert as_documents(["same", "same"]) == as_documents(["same"])
    with pytest.raises(ValueError, match="two different documents"):
        as_documents([Document("a", "1"), Document("a", "2")])
    with pytest.raises(TypeError):
        as_documents([3])


def test_a_document_id_cannot_break_its_tag() -> None:
    assert Document('a"><x', "t").block.startswith('<document id="a&quot;>&lt;x">')


def test_tool_bytes_are_the_same_in_every_process() -> None:
    """Two spellings of one tool, eight hash seeds: one form."""
    code = (
        "from agentkv.prompt import canonical_json, canonical_tool\n"
        "p = {'type': 'object', 'properties': {'zeta': {'type': 'string'}, 'alpha': {}},"
        " 'required': ['zeta']}\n"
        "a = {'function': {'parameters': p, 'description': 'd', 'name': 'f'}, 'type': 'function'}\n"
        "b = {'name': 'f', 'inputSchema': p, 'annotations': {'x': 1}, 'description': 'd'}\n"
        "print(canonical_json(canonical_tool(a)) + '|' + canonical_json(canonical_tool(b)))\n"
    )
    outs = set()
    for seed in range(4):
        env = {**os.environ, "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        one, other = done.stdout.strip().split("|")
        assert one == other
        outs.add(one)
    assert len(outs) == 1
    (only,) = outs
    assert only.index('"zeta"') < only.index('"alpha"'), "properties are never sorted"
    assert only.startswith('{"type": "function", "function": {"name": "f", "description": "d"')


def test_canonical_json_keeps_text_readable() -> None:
    assert canonical_json({"b": "é", "a": [1, 2]}) == '{"b": "é", "a": [1, 2]}'


@pytest.mark.parametrize("room", ["prompt", "layout", "report"])
def test_light_rooms_load_neither_torch_nor_langchain(room: str) -> None:
    code = (
        f"import sys, agentkv.{room}\n"
        "heavy = {'torch', 'transformers', 'langchain_core', 'httpx', 'rich'}\n"
        "found = heavy & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
