"""Structured output: every method and kind of schema, in streams and out, and answers cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration
from langchain_core.utils.function_calling import convert_to_json_schema
from pydantic import BaseModel, Field, ValidationError
from pydantic.v1 import BaseModel as OldModel

from agentkv.client import errors as e
from agentkv.langchain import ChatAgentKV, StructuredOutputTruncated
from agentkv.langchain.structured import _ClassOfCall, _ClassOfText, _DictOfCall, _DictOfText
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine import Engine


class Parcel(BaseModel):
    """Where a parcel is."""

    place: str = Field(description="a town", max_length=12)
    days: int = Field(ge=0, le=9)


class OldParcel(OldModel):
    """Where a parcel is."""

    place: str
    late: bool


class ParcelDict(TypedDict):
    """Where a parcel is."""

    place: Annotated[str, ..., "a town"]
    late: Annotated[bool, ..., "whether it is late"]


SCHEMA = {
    "title": "Parcel",
    "description": "Where a parcel is.",
    "type": "object",
    "properties": {"place": {"type": "string", "maxLength": 12}, "late": {"type": "boolean"}},
    "required": ["place", "late"],
}
KINDS: dict[str, Any] = {
    "pydantic": Parcel,
    "pydantic1": OldParcel,
    "TypedDict": ParcelDict,
    "schema": SCHEMA,
}


def find(place: str) -> str:
    """Find a parcel."""
    return place


@pytest.fixture(params=["inproc", "http"])
def llm(
    request: pytest.FixtureRequest, shared: Engine, serve: Callable[..., str]
) -> Iterator[ChatAgentKV]:
    where: dict[str, Any] = (
        {"engine": shared} if request.param == "inproc" else {"base_url": serve(shared)}
    )
    with ChatAgentKV(model="tiny", max_tokens=120, **where) as made:
        yield made


def fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, (BaseModel, OldModel)):
        return isinstance(value, kind)
    return isinstance(value, dict) and set(value) == {"place", "late"}


METHODS = ("json_schema", "function_calling", "json_mode")


@pytest.mark.parametrize(
    ("llm", "method", "kind"),
    [
        # What an answer is parsed to does not depend on where it came from.
        pytest.param(where, method, kind, marks=pytest.mark.slow if where == "inproc" and n else ())
        for where in ("inproc", "http")
        for method in METHODS
        for n, kind in enumerate(KINDS)
    ],
    indirect=["llm"],
)
def test_every_method_and_kind(llm: ChatAgentKV, method: Any, kind: str) -> None:
    """The model is random: only the grammar makes these objects."""
    schema = KINDS[kind]
    chat = llm.with_structured_output(schema, method=method)
    whole = chat.invoke("Where is it?")
    assert fits(whole, schema)
    pieces = list(chat.stream("Where is it?"))
    assert pieces[-1] == whole
    assert asyncio.run(chat.ainvoke("Where is it?")) == whole


def test_include_raw(llm: ChatAgentKV) -> None:
    for method in ("json_schema", "function_calling"):
        got = llm.with_structured_output(Parcel, method=method, include_raw=True).invoke("x")
        assert set(got) == {"raw", "parsed", "parsing_error"}
        assert isinstance(got["parsed"], Parcel)
        assert got["parsing_error"] is None
        assert CacheReport.from_message(got["raw"]) is not None


def test_the_schema_leaves_the_prompt_alone(shared: Engine) -> None:
    """R6: the prefix of plain calls serves constrained ones, and one schema after another."""
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=120)
    plain = CacheReport.from_message(llm.invoke("Where is it?", max_tokens=1))
    assert plain is not None
    for schema in (Parcel, SCHEMA, None):
        method: Any = "json_schema" if schema is not None else "json_mode"
        chat = llm.with_structured_output(schema, method=method, include_raw=True)
        got = CacheReport.from_message(chat.invoke("Where is it?")["raw"])
        assert got is not None
        assert got.prompt_tokens == plain.prompt_tokens
        assert got.cached_tokens == plain.prompt_tokens - 1


def test_strict_is_accepted_and_changes_nothing(shared: Engine) -> None:
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=120)
    for method in ("json_schema", "function_calling"):
        got = [
            llm.with_structured_output(Parcel, method=method, strict=s, include_raw=True).invoke(
                "x"
            )
            for s in (None, False, True)
        ]
        assert got[0]["parsed"] == got[1]["parsed"] == got[2]["parsed"]
        counts = {g["raw"].usage_metadata["input_tokens"] for g in got}
        assert len(counts) == 1


@pytest.mark.parametrize("kind", ["pydantic", "TypedDict", "schema"])
@pytest.mark.parametrize("method", METHODS)
def test_tracers_see_the_schema(method: Any, kind: str) -> None:
    schema = KINDS[kind]
    chat: Any = ChatAgentKV(model="none").with_structured_output(schema, method=method)
    option = chat.first.kwargs["ls_structured_output_format"]
    assert option["kwargs"]["method"] == method
    assert convert_to_json_schema(option["schema"]) == convert_to_json_schema(schema)


def test_objects_beside_tools(llm: ChatAgentKV) -> None:
    """R17: with tools the answer is a call or the object; a call parses to None."""
    chat = llm.with_structured_output(Parcel, tools=[find], include_raw=True)
    got = chat.invoke("Where is it?")
    raw = got["raw"]
    assert got["parsing_error"] is None
    assert (got["parsed"] is None) == bool(raw.tool_calls)
    forced = chat.first.steps__["raw"] if hasattr(chat.first, "steps__") else None  # type: ignore[attr-defined]
    bound = forced or llm.bind_tools([find], response_format=Parcel)
    called = bound.invoke("Where is it?", tool_choice="any")
    assert [c["name"] for c in called.tool_calls] == ["find"]
    object_ = bound.invoke("Where is it?", tool_choice="none")
    assert not object_.tool_calls
    assert Parcel.model_validate_json(object_.text)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"schema": Parcel, "method": "yaml"}, "yaml"),
        ({"schema": None}, "needs a schema"),
        ({"schema": Parcel, "method": "json_mode", "tools": [find]}, "tools"),
        ({"schema": 3}, "schema"),
    ],
)
def test_what_cannot_be_is_refused_at_once(given: dict[str, Any], match: str) -> None:
    with pytest.raises(e.InvalidCall, match=match):
        ChatAgentKV(model="none").with_structured_output(**given)


def test_a_schema_that_no_grammar_holds_names_the_place(llm: ChatAgentKV) -> None:
    schema = {
        "title": "X",
        "type": "object",
        "properties": {"a": {"type": "array", "contains": {}}},
    }
    with pytest.raises(e.InvalidCall, match=r"properties\.a"):
        llm.with_structured_output(schema).invoke("x")


def test_a_schema_that_is_no_object(llm: ChatAgentKV) -> None:
    """Lists, choices and maps have no `properties`; core would read the title alone."""
    choice = {"title": "Vote", "enum": ["yes", "no"]}
    assert llm.with_structured_output(choice).invoke("May I?") in ("yes", "no")
    numbers = {
        "title": "Numbers",
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": 9},
        "minItems": 2,
        "maxItems": 2,
    }
    got = llm.with_structured_output(numbers).invoke("Two numbers!")
    assert isinstance(got, list)
    assert len(got) == 2
    with pytest.raises(e.InvalidCall, match="an object"):
        llm.with_structured_output(numbers, method="function_calling")


# -- answers cut short ---------------------------------------------------------------------------


def test_too_few_tokens_say_so(llm: ChatAgentKV) -> None:
    """An object that cannot be complete is an error with a name, never a part of an object."""
    for method in ("json_schema", "function_calling"):
        chat = llm.with_structured_output(Parcel, method=method).with_config()
        with pytest.raises(e.InvalidCall) as found:
            chat.invoke("x", max_tokens=3)
        assert found.value.param == "max_tokens"


def cut(content: str = "", calls: list[Any] | None = None, **more: Any) -> AIMessageChunk:
    return AIMessageChunk(
        content=content,
        tool_call_chunks=calls or [],
        response_metadata={"finish_reason": "length", **more},
        chunk_position="last",
    )


PARTIAL = '{"place": "Bonn", "da'


@pytest.mark.parametrize("parser", [_DictOfText(), _ClassOfText(pydantic_object=Parcel)])
def test_cut_text_is_no_object(parser: Any) -> None:
    """Core's parsers complete it by guess, and a field that has a default would hide the loss."""
    message = AIMessage(PARTIAL, response_metadata={"finish_reason": "length"})
    with pytest.raises(StructuredOutputTruncated, match="max_tokens") as found:
        parser.invoke(message)
    assert found.value.llm_output == PARTIAL
    with pytest.raises(StructuredOutputTruncated):
        list(parser.transform(iter([AIMessageChunk(content=PARTIAL[:9]), cut(PARTIAL[9:])])))
    whole = AIMessage('{"place": "Bonn", "days": 1}', response_metadata={"finish_reason": "length"})
    assert parser.invoke(whole) in ({"place": "Bonn", "days": 1}, Parcel(place="Bonn", days=1))


@pytest.mark.parametrize(
    "parser",
    [
        _DictOfCall(key_name="Parcel", first_tool_only=True),
        _ClassOfCall(tools=[Parcel], first_tool_only=True),
    ],
)
def test_a_cut_call_is_no_object(parser: Any) -> None:
    piece = tool_call_chunk(name="Parcel", args=PARTIAL, id="1", index=0)
    with pytest.raises(StructuredOutputTruncated):
        list(parser.transform(iter([cut(calls=[piece])])))
    broken: Any = {"name": "Parcel", "args": PARTIAL, "id": "1", "error": "cut off"}
    message = AIMessage(
        "", invalid_tool_calls=[broken], response_metadata={"finish_reason": "length"}
    )
    with pytest.raises(StructuredOutputTruncated):
        parser.invoke(message)
    nothing = AIMessage("", response_metadata={"finish_reason": "length"})
    with pytest.raises(StructuredOutputTruncated):
        parser.invoke(nothing)


def test_truncation_is_a_parsing_error_that_no_retry_helps() -> None:
    error = StructuredOutputTruncated("It was cut off.", llm_output="{")
    assert isinstance(error, OutputParserException)
    assert isinstance(error, e.AgentKVError)
    assert not error.is_retryable
    assert (str(error), error.param) == ("It was cut off.", "max_tokens")


def test_include_raw_hands_the_truncation_over() -> None:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel

    from agentkv.langchain.structured import structured

    message = AIMessage(PARTIAL, response_metadata={"finish_reason": "length"})
    fake = GenericFakeChatModel(messages=iter([message]))
    chat = structured(
        lambda **_: fake,
        lambda *_, **__: fake,
        Parcel,
        method="json_schema",
        include_raw=True,
        strict=None,
        tools=None,
    )
    got = chat.invoke("x")
    assert got["parsed"] is None
    assert isinstance(got["parsing_error"], StructuredOutputTruncated)


def test_an_object_that_its_class_refuses_is_an_error() -> None:
    parser = _ClassOfText(pydantic_object=Parcel)
    with pytest.raises(OutputParserException):
        parser.invoke(AIMessage('{"place": "Bonn", "days": 77}'))
    call: Any = {"name": "Parcel", "args": {"place": "Bonn", "days": 77}, "id": "1"}
    with pytest.raises((ValidationError, OutputParserException)):
        _ClassOfCall(tools=[Parcel], first_tool_only=True).parse_result(
            [ChatGeneration(message=AIMessage("", tool_calls=[call]))]
        )
