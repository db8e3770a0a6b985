"""Tools of every kind have one JSON form, and what may be called is said in one shape."""

from __future__ import annotations

import gc
import json
import pickle
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import StructuredTool, tool
from pydantic import BaseModel, Field
from pydantic.v1 import BaseModel as OldModel

from agentkv.client.errors import InvalidCall
from agentkv.langchain import ChatAgentKV
from agentkv.langchain import tools as module
from agentkv.langchain.choice import as_choice, as_response_format
from agentkv.langchain.tools import names_of, to_tools

if TYPE_CHECKING:
    from agentkv.engine import Engine


class Find(BaseModel):
    """Find a parcel."""

    zip_code: str = Field(description="where")
    age: int | None = None


class OldFind(OldModel):
    """Find a parcel."""

    zip_code: str


class FindDict(TypedDict):
    """Find a parcel."""

    zip_code: Annotated[str, ..., "where"]


def find(zip_code: str, age: int = 3) -> str:
    """Find a parcel."""
    return zip_code


SCHEMA = {"title": "Find", "description": "d", "type": "object", "properties": {}}
ANTHROPIC = {
    "name": "f",
    "description": "d",
    "input_schema": {"type": "object", "properties": {}},
    "cache_control": {"type": "ephemeral"},
}


@pytest.mark.parametrize(
    "kind",
    [
        find,
        tool(find),
        Find,
        OldFind,
        FindDict,
        SCHEMA,
        ANTHROPIC,
        {"name": "f", "inputSchema": {}},
    ],
    ids=[
        "function",
        "BaseTool",
        "pydantic",
        "pydantic1",
        "TypedDict",
        "schema",
        "anthropic",
        "mcp",
    ],
)
def test_every_kind_of_tool(kind: Any) -> None:
    (got,) = to_tools([kind])
    assert list(got) == ["type", "function"]
    assert set(got["function"]) <= {"name", "description", "parameters"}
    assert next(iter(got["function"])) == "name"
    assert got["function"]["parameters"].get("type", "object") == "object"
    (again,) = to_tools([got])
    assert json.dumps(again) == json.dumps(got), "one form stays as it is"
    assert json.dumps(to_tools([kind])) == json.dumps([got]), "and comes back the same"


def test_what_is_no_tool_is_refused_with_its_place() -> None:
    for wrong in ([find, 3], [find, {"type": "web_search"}], [find, {"type": "object"}]):
        with pytest.raises(InvalidCall, match=r"tools\[1\]") as found:
            to_tools(wrong)  # type: ignore[arg-type]
        assert found.value.param == "tools"
    with pytest.raises(InvalidCall, match="list"):
        to_tools({"name": "f"})  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="another provider"):
        to_tools([{"type": "web_search_20250305", "name": "web_search"}])
    with pytest.raises(InvalidCall, match="'array'"):
        to_tools([{"title": "Tags", "type": "array", "items": {"type": "string"}}])


def test_a_schema_without_properties_is_kept() -> None:
    """Core takes the title alone, which would allow any arguments."""
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    (got,) = to_tools([{"title": "score", "description": "Points by name.", **schema}])
    want = {"name": "score", "description": "Points by name.", "parameters": schema}
    assert got == {"type": "function", "function": want}
    assert names_of(to_tools([{"title": "ping"}, {"name": "pong"}])) == ["ping", "pong"]


def test_strict_changes_no_byte_of_the_tools() -> None:
    llm = ChatAgentKV(model="none")
    plain, strict = (llm.bind_tools([find, Find], strict=s).kwargs["tools"] for s in (None, True))  # type: ignore[attr-defined]
    assert json.dumps(plain) == json.dumps(strict)


def test_what_was_converted_is_remembered_while_it_lives() -> None:
    known = module._CONVERTED._known

    def passing(n: int) -> str:
        """Pass."""
        return str(n)

    (first,) = to_tools([passing])
    key = id(passing)
    assert key in known
    first["function"]["description"] = "spoiled by its receiver"
    assert to_tools([passing])[0]["function"]["description"] == "Pass."
    passing.__doc__ = "Pass on."
    assert to_tools([passing])[0]["function"]["description"] == "Pass on."
    del passing
    gc.collect()
    assert key not in known


def test_a_tool_that_is_changed_is_converted_anew() -> None:
    made = tool(find)
    to_tools([made])
    made.description = "Find a letter."
    assert to_tools([made])[0]["function"]["description"] == "Find a letter."
    made.args_schema = Find
    assert "anyOf" in json.dumps(to_tools([made]))
    given: dict[str, Any] = {"name": "f", "description": "one"}
    to_tools([given])
    given["description"] = "two"
    assert to_tools([given])[0]["function"]["description"] == "two"


def test_conversion_from_many_threads() -> None:
    functions = []
    for i in range(20):

        def f(a: int) -> int:
            """Do it."""
            return a

        f.__name__ = f"f{i}"
        functions.append(f)
    want = json.dumps([to_tools([f]) for f in functions])
    wrong: list[str] = []

    def work() -> None:
        if json.dumps([to_tools([f]) for f in functions]) != want:
            wrong.append("other bytes")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_binding_fifty_tools_again_is_cheap(traces: Path) -> None:
    """Agents bind their tools anew for every call. Converting 50 functions takes some 60 ms."""
    given = json.loads((traces / "tools" / "github_mcp_tools.json").read_text())[:25]
    tools: list[Any] = [
        StructuredTool(
            name=t["name"],
            description=t["description"] or "-",
            args_schema=t["inputSchema"],
            func=find,
        )
        for t in given
    ]
    for i in range(25):

        def f(a: int, b: str = "x") -> str:
            """Do it."""
            return b

        f.__name__ = f"f{i}"
        tools.append(f)
    llm = ChatAgentKV(model="none")
    llm.bind_tools(tools)
    best = 1.0
    for _ in range(5):
        start = time.perf_counter()
        llm.bind_tools(tools)
        best = min(best, time.perf_counter() - start)
    assert best < 0.01


# -- tool_choice ---------------------------------------------------------------------------------

NAMES = ["find", "send"]


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [named(name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("choice", "only", "want"),
    [
        (None, None, None),
        (False, None, None),
        ("auto", None, "auto"),
        ("none", None, "none"),
        ("any", None, "required"),
        ("required", None, "required"),
        (True, None, "required"),
        ({"type": "any"}, None, "required"),
        ({"type": "auto"}, None, "auto"),
        ("find", None, named("find")),
        (named("find"), None, named("find")),
        ({"type": "function", "name": "find"}, None, named("find")),
        ({"type": "tool", "name": "find"}, None, named("find")),
        (allowed("required", "send"), None, allowed("required", "send")),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "send"}]},
            None,
            allowed("auto", "send"),
        ),
        (None, ["send"], allowed("auto", "send")),
        ("any", ["send"], allowed("required", "send")),
        ("auto", ["send", "find"], "auto"),
        ("any", ["send", "find"], "required"),
        ("none", ["send"], "none"),
        ("send", ["send"], named("send")),
        (None, [], "none"),
        (allowed("auto", "send", "find"), ["send"], allowed("auto", "send")),
    ],
)
def test_choices_in_one_shape(choice: Any, only: list[str] | None, want: Any) -> None:
    assert as_choice(choice, NAMES, only) == want


@pytest.mark.parametrize(
    ("choice", "only", "names", "param"),
    [
        ("lose", None, NAMES, "tool_choice"),
        (named("lose"), None, NAMES, "tool_choice"),
        ("find", ["send"], NAMES, "tool_choice"),
        (None, ["lose"], NAMES, "allowed_tools"),
        ("any", None, [], "tool_choice"),
        ("any", [], NAMES, "tool_choice"),
        ({"type": "sometimes"}, None, NAMES, "tool_choice"),
        (3, None, NAMES, "tool_choice"),
    ],
)
def test_choices_that_cannot_be(
    choice: Any, only: list[str] | None, names: list[str], param: str
) -> None:
    with pytest.raises(InvalidCall) as found:
        as_choice(choice, names, only)
    assert found.value.param == param


def test_wrong_names_fail_where_they_are_bound() -> None:
    llm = ChatAgentKV(model="none")
    with pytest.raises(InvalidCall, match="lose"):
        llm.bind_tools([find], tool_choice="lose")
    with pytest.raises(InvalidCall, match="lose"):
        llm.bind_tools([find], allowed_tools=["lose"])


def test_a_binding_is_plain_data() -> None:
    bound = ChatAgentKV(model="none").bind_tools(
        [find, tool(find), Find],
        tool_choice="any",
        parallel_tool_calls=False,
        response_format=Find,
        allowed_tools=["find"],
    )
    again = pickle.loads(pickle.dumps(bound))
    assert again.kwargs == bound.kwargs  # type: ignore[attr-defined]
    assert names_of(again.kwargs["tools"]) == ["find", "find", "Find"]


# -- response_format -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Find, FindDict, SCHEMA])
def test_schemas_of_every_kind(kind: Any) -> None:
    got = as_response_format(kind)
    assert got is not None
    assert got["type"] == "json_schema"
    inner = got["json_schema"]
    assert inner["name"] in ("Find", "FindDict")
    assert inner["schema"]["type"] == "object"
    assert as_response_format(got) == got


def test_schemas_in_other_shapes() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    want = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    assert as_response_format(schema) == want
    assert as_response_format({"name": "answer", "schema": schema}) == want
    assert as_response_format({"type": "json_schema", "name": "answer", "schema": schema}) == want
    assert as_response_format({"type": "json_object"}) == {"type": "json_object"}
    assert as_response_format(None) is None
    for bare in (
        {"type": "array", "items": {"type": "integer"}},
        {"enum": ["yes", "no"]},
        {"type": "object", "additionalProperties": {"type": "integer"}},
    ):
        got = as_response_format({"title": "Told", "description": "What it says.", **bare})
        told = {"name": "Told", "description": "What it says.", "schema": bare}
        assert got == {"type": "json_schema", "json_schema": told}
    for wrong in (
        3,
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "x"}},
    ):
        with pytest.raises(InvalidCall) as found:
            as_response_format(wrong)
        assert found.value.param == "response_format"


def test_a_tool_that_a_call_leaves_out_stays_in_the_prompt(shared: Engine) -> None:
    """`keep_tools`: the prefix stays, and the answer may still use only what was given."""

    def facts(keep: bool) -> tuple[int, int, set[str]]:
        llm = ChatAgentKV(
            model="tiny", engine=shared, max_tokens=160, keep_tools=keep, session=f"keep {keep}"
        )
        every = [
            {
                "name": n,
                "description": "Does it.",
                "parameters": {"type": "object", "properties": {}},
            }
            for n in ("alpha", "beta", "gamma")
        ]
        shared.flush()
        llm.bind_tools(every, tool_choice="any").invoke("Go.")
        answer = llm.bind_tools(every[2:], tool_choice="any").invoke("Go.")
        assert isinstance(answer, AIMessage) and answer.usage_metadata is not None
        read = answer.usage_metadata["input_token_details"]["cache_read"]
        names = {call["name"] for call in answer.tool_calls}
        return answer.usage_metadata["input_tokens"], read, names

    prompt, cached, names = facts(True)
    assert cached == prompt - 1 and names == {"gamma"}
    shorter, fewer, names = facts(False)
    assert shorter < prompt and fewer < shorter - 1 and names == {"gamma"}


def test_lines_of_system_text_can_be_left_out(shared: Engine) -> None:
    """B068: a client's header line, another one each time, at the very front."""

    def rate(**how: Any) -> float:
        llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=1, session=repr(how), **how)
        shared.flush()
        for mark in ("1a", "2b"):
            text = f"x-billing: cch={mark};\nYou are careful. " + "Stay calm. " * 30
            answer = llm.invoke([SystemMessage(text), HumanMessage("Go.")])
        usage = answer.usage_metadata
        assert usage is not None
        return usage["input_token_details"]["cache_read"] / usage["input_tokens"]

    assert rate() < 0.2
    assert rate(drop_lines=("x-billing:",)) > 0.95
