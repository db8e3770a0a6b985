"""Answers that are objects: the grammar holds the model to a schema, and a parser reads the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Literal

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.output_parsers.openai_tools import JsonOutputKeyToolsParser, PydanticToolsParser
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.utils.pydantic import is_basemodel_subclass

from agentkv.client.errors import InvalidCall
from agentkv.langchain.choice import as_response_format
from agentkv.langchain.tools import AnyTool, names_of, to_tools

Method = Literal["json_schema", "function_calling", "json_mode"]


class StructuredOutputTruncated(InvalidCall, OutputParserException):
    """The answer was cut off by `max_tokens` before its object was complete.

    `llm_output` is what there is of it. The same call would end the same way: raise `max_tokens`,
    or ask for less.
    """

    code = "output_truncated"
    param = "max_tokens"

    def __init__(self, message: str, llm_output: str = "") -> None:
        InvalidCall.__init__(self, message)
        # Core's class adds a link to its own manual.
        self.args = (message,)
        self.observation = None
        self.llm_output = llm_output
        self.send_to_llm = False


def structured(
    bind: Callable[..., Runnable[Any, AIMessage]],
    bind_tools: Callable[..., Runnable[Any, AIMessage]],
    schema: Any,
    *,
    method: str,
    include_raw: bool,
    strict: bool | None,
    tools: Sequence[AnyTool] | None,
    **kwargs: Any,
) -> Runnable[Any, Any]:
    """`with_structured_output` over a model's `bind` and `bind_tools`."""
    if method not in ("json_schema", "function_calling", "json_mode"):
        raise _wrong(f"method {method!r} is not json_schema, function_calling or json_mode.")
    if schema is None and method != "json_mode":
        raise _wrong(f"method {method!r} needs a schema.")
    if tools and method != "json_schema":
        raise _wrong('tools= goes with method="json_schema": the answer is a call or the object.')
    how: dict[str, Any] = {"method": method}
    if method != "json_mode":
        how["strict"] = strict
    kwargs = {"ls_structured_output_format": {"kwargs": how, "schema": schema}, **kwargs}
    is_class = isinstance(schema, type) and is_basemodel_subclass(schema)
    parser: Runnable[Any, Any]
    if method == "function_calling":
        (definition,) = to_tools([schema])
        (name,) = names_of([definition])
        llm = bind_tools([schema], tool_choice=name, parallel_tool_calls=False, **kwargs)
        if is_class:
            parser = _ClassOfCall(tools=[schema], first_tool_only=True)
        else:
            parser = _DictOfCall(key_name=name, first_tool_only=True)
    else:
        # JSON mode knows its schema too, so the grammar may as well hold to it.
        wanted = as_response_format({"type": "json_object"} if schema is None else schema)
        assert wanted is not None
        if strict is not None and "json_schema" in wanted:
            wanted["json_schema"]["strict"] = strict
        kwargs["response_format"] = wanted
        llm = bind_tools(tools, **kwargs) if tools else bind(**kwargs)
        parser = _ClassOfText(pydantic_object=schema) if is_class else _DictOfText()
    if not include_raw:
        return llm | parser
    parsed = RunnablePassthrough.assign(
        parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
    )
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    return RunnableMap(raw=llm) | parsed.with_fallbacks([failed], exception_key="parsing_error")


def _check(generations: list[Generation]) -> AIMessage | None:
    """The message; raises `StructuredOutputTruncated` when it ended before its object did."""
    generation = generations[0]
    message = generation.message if isinstance(generation, ChatGeneration) else None
    if not isinstance(message, AIMessage):
        return None
    if message.response_metadata.get("finish_reason") == "length" and not _complete(message):
        usage = message.usage_metadata
        spent = f" after {usage['output_tokens']} tokens" if usage else ""
        raise StructuredOutputTruncated(
            f"The answer ended{spent}, before its object was complete. "
            "Raise max_tokens, or ask for less.",
            llm_output=message.text or json.dumps(_arguments(message)),
        )
    return message


def _complete(message: AIMessage) -> bool:
    arguments = _arguments(message)
    if message.invalid_tool_calls or not (arguments or message.text):
        return False
    try:
        for text in arguments or [message.text]:
            json.loads(text or "{}")
    except ValueError:
        return False
    return True


def _arguments(message: BaseMessage) -> list[str]:
    if isinstance(message, AIMessageChunk):
        return [c["args"] or "" for c in message.tool_call_chunks]
    if isinstance(message, AIMessage):
        return [
            *(json.dumps(c["args"]) for c in message.tool_calls),
            *(c["args"] or "" for c in message.invalid_tool_calls),
        ]
    return []


class _DictOfText(JsonOutputParser):
    """The answer's JSON; None where the model called a tool instead."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        message = _check(result)
        if message is not None and message.tool_calls:
            return None
        return super().parse_result(result, partial=partial)


class _ClassOfText(PydanticOutputParser[Any]):
    """The answer as an object of a pydantic class; None where the model called a tool instead."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        message = _check(result)
        if message is not None and message.tool_calls:
            return None
        return super().parse_result(result, partial=partial)


class _DictOfCall(JsonOutputKeyToolsParser):
    """The arguments of the call."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        _check(result)
        return super().parse_result(result, partial=partial)


class _ClassOfCall(PydanticToolsParser):
    """The arguments of the call, as an object of a pydantic class."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        _check(result)
        return super().parse_result(result, partial=partial)


def _wrong(message: str) -> InvalidCall:
    return InvalidCall(message)
