"""Tool JSON in one form: over hash seeds, processes, orders and spellings."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from agentkv.layout import Memory, arrange
from agentkv.prompt import Prompt, read_tool, static
from agentkv.prompt import tools as tools_module

USER = {"role": "user", "content": "Where is my parcel?"}

PROGRAM = """
import hashlib, json, random, sys
from agentkv.layout import Memory, arrange
from agentkv.prompt import Prompt

tools = json.loads(sys.stdin.read())
user = {"role": "user", "content": "?"}
random.shuffle(tools)          # another order in every process
memory = Memory()
seen = set()
for session in ("a", "a", "b"):
    # Sets: their order is that of the hash seed.
    shuffled = [tools[i] for i in set(range(len(tools)))]
    by_name = {t["name"]: t for t in shuffled}
    given = [by_name[n] for n in {t["name"] for t in shuffled}]
    got = arrange(Prompt.build([user], given), memory=memory, session=session)
    seen.add(json.dumps(got.tools, ensure_ascii=False))
assert len(seen) == 1, len(seen)
print(hashlib.sha256(seen.pop().encode()).hexdigest())
"""


def run(tools: list[dict[str, Any]], seed: int) -> str:
    env = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(tools),
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_eight_hash_seeds_and_two_processes_give_the_same_bytes(traces: Path) -> None:
    tools = json.loads((traces / "tools" / "github_mcp_tools.json").read_text("utf-8"))
    outs = {run(tools, seed) for seed in range(8)} | {run(tools, 0)}
    assert len(outs) == 1
    here = arrange(Prompt.build([USER], tools)).tools
    text = json.dumps(here, ensure_ascii=False)
    assert outs == {hashlib.sha256(text.encode()).hexdigest()}


def test_shuffled_for_every_call_the_bytes_are_the_same(traces: Path) -> None:
    """B070: 117 tools of an MCP server, shuffled, paged, and one server that reconnects."""
    tools = json.loads((traces / "tools" / "github_mcp_tools.json").read_text("utf-8"))
    assert len(tools) == 117
    shuffle = random.Random(7)
    for session in (True, False):
        memory = Memory()
        seen = set()
        for k in range(12):
            given = list(tools)
            shuffle.shuffle(given)
            if k % 3 == 2:
                given = given[30:] + given[:30]
            kwargs: dict[str, Any] = {"memory": memory, "session": "s"} if session else {}
            laid = arrange(Prompt.build([USER], given), **kwargs)
            seen.add(json.dumps(laid.tools))
            assert laid.warnings == ()
        assert len(seen) == 1


def test_an_enum_that_a_set_feeds_is_warned_of() -> None:
    """Its order is that of the hash seed: the other order comes from another process's store."""
    memory = Memory()

    def lay(values: list[str], session: str) -> tuple[str, ...]:
        schema = {"type": "object", "properties": {"color": {"enum": values}}}
        prompt = Prompt.build([USER], [{"name": "paint", "parameters": schema}])
        return arrange(prompt, memory=memory, session=session).warnings

    assert lay(["red", "green", "blue"], "one") == ()
    (said,) = lay(["blue", "red", "green"], "two")
    assert "$.function.parameters.properties.color.enum[0]" in said
    assert "a set or an unordered mapping feeds it" in said
    assert lay(["green", "red", "blue"], "three") == (), "once"


def test_text_and_block_content_give_equal_bytes() -> None:
    def lay(content: Any, answer: Any) -> str:
        talk = [
            {"role": "system", "content": content},
            USER,
            {"role": "assistant", "content": answer},
            USER,
        ]
        return json.dumps(arrange(talk).messages)

    def blocks(*texts: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": t} for t in texts]

    plain = lay("Be kind.", "It is late.")
    assert lay(blocks("Be kind."), blocks("It is ", "late.")) == plain
    v3 = [{"type": "text", "text": "It is late.", "index": 0, "id": "lc_17"}]
    assert lay("Be kind.", v3) == plain


def test_marks_survive_a_round_trip_through_json() -> None:
    head = {"role": "system", "content": [static("Be kind.", name="rules")]}
    laid = arrange([head, USER])
    again = arrange(json.loads(json.dumps(list(laid.messages))))
    assert json.dumps(again.messages) == json.dumps(laid.messages)


def test_a_tool_is_read_once_and_again_when_it_changed_in_place() -> None:
    given = {"name": "f_once", "parameters": {"type": "object", "properties": {"a": {}}}}
    first = read_tool(given)
    assert read_tool(json.loads(json.dumps(given))) is first
    given["parameters"]["properties"]["b"] = {}  # type: ignore[index]
    assert list(read_tool(given).definition["function"]["parameters"]["properties"]) == ["a", "b"]
    first.definition["function"]["name"] = "changed"
    assert first.definition["function"]["name"] == "f_once", "each caller has a dict of its own"


def test_keys_that_json_would_make_equal_are_told_apart() -> None:
    import pytest

    from agentkv.engine.errors import InvalidRequest

    read_tool({"name": "k", "parameters": {"1": "x"}})
    with pytest.raises(InvalidRequest):
        read_tool({"name": "k", "parameters": {1: "x"}})
    one = read_tool({"name": "k", "parameters": {"x": 1}})
    assert read_tool({"name": "k", "parameters": {"x": True}}).text != one.text


def test_what_is_remembered_of_tools_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(tools_module, "_known", known := tools_module._Known())
    monkeypatch.setattr(tools_module, "_ENTRIES", 5)
    for k in range(20):
        read_tool({"name": f"f{k}"})
    assert len(known._tools) == 5
    monkeypatch.setattr(tools_module, "_BYTES", 1)
    read_tool({"name": "last"})
    assert (len(known._tools), known._bytes) == (0, 0)


class Odd(dict[str, Any]):
    pass


def test_mappings_that_are_no_plain_dicts_are_read_without_the_store() -> None:
    odd = Odd(name="odd", parameters=Odd(type="object", properties={}))
    assert read_tool(odd).text == read_tool(json.loads(json.dumps(odd))).text
