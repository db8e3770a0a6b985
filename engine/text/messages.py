"""Chat messages as clients send them, checked and brought to one form.

OpenAI's wire shape has many spellings of one message: content as text, as a list of parts, null or
missing; arguments as text or as an object. They must all give the same prompt, or a client that
changes spelling between two turns loses its prefix. Random ids never pass this point: tool calls
are numbered instead, for the few templates that insist on an id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.text.canonical import plain
from agentkv.engine.text.template import ChatTemplate

KINDS = frozenset(
    (
        "tools",
        "instructions",
        "examples",
        "documents",
        "memory",
        "history",
        "context",
        "question",
        "template",
    )
)
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_ALIASES = {"developer": "system", "function": "tool"}
_STANDARD = frozenset(("system", "user", "assistant", "tool"))
_TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """What a text part says about itself in its `agentkv` object."""

    name: str | None = None
    kind: str | None = None
    stability: str | None = None
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a message's text."""

    text: str
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: `arguments` as JSON value, or as text when it is no JSON.

    `id` is its number, which templates see; `given_id` the client's own, which they never do.
    """

    name: str
    arguments: Any
    id: str
    given_id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `call_id` is the number of the tool call that a tool message answers."""

    role: str
    parts: tuple[Part, ...] = ()
    calls: tuple[Call, ...] = ()
    name: str | None = None
    reasoning: str | None = None
    call_id: str | None = None

    @property
    def text(self) -> str:
        """All parts, joined as they are."""
        return "".join(part.text for part in self.parts)


@dataclass(slots=True)
class _Numbers:
    """Tool calls in the order in which they appear, and which of them have no answer yet."""

    count: int = 0
    known: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)

    def call(self, given: Any) -> str:
        number = f"call{self.count:05d}"
        self.count += 1
        self.waiting.append(number)
        if isinstance(given, str):
            self.known[given] = number
        return number

    def answer(self, given: Any) -> str:
        number = self.known.get(given) if isinstance(given, str) else None
        if number is None:
            number = self.waiting[0] if self.waiting else "call00000"
        if number in self.waiting:
            self.waiting.remove(number)
        return number


def read_messages(messages: Any, template: ChatTemplate) -> list[Message]:
    """The checked form of `messages`.

    An assistant's thought may come as `reasoning_content`, `reasoning` or `thinking` (the first
    that is not empty counts); one between `<think>` tags is content. The template decides whether
    a thought of an older turn is shown; one that knows no thoughts leaves the field out.

    Raises `InvalidRequest(param="messages")` for anything that would not reach the model as text:
    other content than text, roles that the template does not know, broken Unicode.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise _bad("messages must be a list of message objects.")
    if not messages:
        raise _bad("messages must hold at least one message.")
    numbers = _Numbers()
    return [_message(m, f"messages[{i}]", template, numbers) for i, m in enumerate(messages)]


def check_text(value: str, where: str, param: str = "messages") -> str:
    """`value` as a plain str. Raises `InvalidRequest` when it holds half a surrogate pair."""
    value = str.__str__(value)
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"{where} holds a lone surrogate (half of a character) at position {error.start}; "
                "send valid Unicode.",
                param=param,
            ) from None
    return value


def check_tree(value: Any, where: str, param: str) -> None:
    """`check_text` on every string in a JSON value, keys included."""
    if isinstance(value, str):
        check_text(value, where, param)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_text(key, where, param)
            check_tree(item, where, param)
    elif isinstance(value, list):
        for item in value:
            check_tree(item, where, param)


def _message(message: Any, where: str, template: ChatTemplate, numbers: _Numbers) -> Message:
    if not isinstance(message, Mapping):
        raise _bad(f"{where} must be an object, got {type(message).__name__}.")
    role = _role(message.get("role"), where, template)
    parts = _parts(message.get("content"), f"{where}.content")
    if (mark := message.get("agentkv")) is not None and len(parts) == 1 and not parts[0].mark:
        parts = (Part(parts[0].text, _mark(mark, f"{where}.agentkv")),)
    name = message.get("name")
    if name is not None:
        if not isinstance(name, str):
            raise _bad(f"{where}.name must be a string.")
        name = check_text(name, f"{where}.name")
    calls: tuple[Call, ...] = ()
    if message.get("function_call"):
        raise _bad(f"{where}.function_call is the old form; send tool_calls.")
    if message.get("tool_calls"):
        if role != "assistant":
            raise _bad(f"{where}: only assistant messages have tool_calls, this one is {role!r}.")
        if not template.renders_calls():
            raise _bad(
                f"{where}: this model's chat template leaves out tool calls; "
                "the model would never see them."
            )
        given = message["tool_calls"]
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
            raise _bad(f"{where}.tool_calls must be a list.")
        calls = tuple(_call(c, f"{where}.tool_calls[{i}]", numbers) for i, c in enumerate(given))
    reasoning = None
    if role == "assistant":
        for key in ("reasoning_content", "reasoning", "thinking"):
            value = message.get(key)
            if isinstance(value, str) and value:
                reasoning = check_text(value, f"{where}.{key}")
                break
    call_id = numbers.answer(message.get("tool_call_id")) if role == "tool" else None
    return Message(role, parts, calls, name, reasoning, call_id)


def _role(given: Any, where: str, template: ChatTemplate) -> str:
    if not isinstance(given, str) or not _ROLE.fullmatch(given):
        raise _bad(f"{where}.role must be a role name, got {given!r:.80}.")
    role = _ALIASES.get(given, str.__str__(given))
    if role not in _STANDARD and not template.names_role(role):
        raise _bad(
            f"{where}.role {role!r} is unknown; use system, developer, user, assistant or tool."
        )
    if not template.renders_role(role):
        raise _bad(
            f"{where}: this model's chat template leaves out messages of role {role!r}; "
            "the model would never see it."
        )
    return role


def _parts(content: Any, where: str) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Part(check_text(content, where)),) if content else ()
    if isinstance(content, (bytes, Mapping)) or not isinstance(content, Sequence):
        raise _bad(f"{where} must be text or a list of text parts.")
    parts: list[Part] = []
    for index, part in enumerate(content):
        here = f"{where}[{index}]"
        mark: Mark | None = None
        if isinstance(part, str):
            text: Any = part
        elif isinstance(part, Mapping):
            kind = part.get("type", "text")
            if not isinstance(kind, str) or kind not in _TEXT_PARTS:
                raise _bad(f"{here} has type {kind!r:.80}; this model takes text only.")
            text = part.get(_TEXT_PARTS[kind])
            if part.get("agentkv") is not None:
                mark = _mark(part["agentkv"], f"{here}.agentkv")
        else:
            raise _bad(f"{here} must be a text part, got {type(part).__name__}.")
        if not isinstance(text, str):
            raise _bad(f"{here}.text must be a string.")
        if text:
            parts.append(Part(check_text(text, here), mark))
    return tuple(parts)


def _mark(mark: Any, where: str) -> Mark:
    if not isinstance(mark, Mapping):
        raise _bad(f"{where} must be an object with name, kind, stability and items.")
    values: dict[str, str | None] = {}
    for key in ("name", "kind", "stability"):
        value = mark.get(key)
        if value is not None and (not isinstance(value, str) or not value or len(value) > 200):
            raise _bad(f"{where}.{key} must be a short string.")
        values[key] = None if value is None else check_text(value, f"{where}.{key}")
    if values["kind"] is not None and values["kind"] not in KINDS:
        raise _bad(f"{where}.kind must be one of {', '.join(sorted(KINDS))}.")
    items = mark.get("items") or ()
    if isinstance(items, (str, bytes)) or not isinstance(items, Sequence):
        raise _bad(f"{where}.items must be a list of names.")
    return Mark(
        values["name"],
        values["kind"],
        values["stability"],
        tuple(check_text(str(item), f"{where}.items") for item in items),
    )


def _call(call: Any, where: str, numbers: _Numbers) -> Call:
    if not isinstance(call, Mapping):
        raise _bad(f"{where} must be an object.")
    function = call.get("function")
    if function is None:
        function = call
    if not isinstance(function, Mapping):
        raise _bad(f"{where}.function must be an object.")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise _bad(f"{where}.function.name must be a string.")
    arguments = function.get("arguments", function.get("args"))
    return Call(
        check_text(name, f"{where}.function.name"),
        _arguments(arguments, f"{where}.function.arguments"),
        numbers.call(call.get("id")),
        call["id"] if isinstance(call.get("id"), str) else None,
    )


def _arguments(value: Any, where: str) -> Any:
    """Arguments as a JSON value, so that text and object give the same prompt."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        check_text(value, where)
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value  # not JSON: what the model wrote is all there is
    value = plain(value, param="messages")
    check_tree(value, where, "messages")
    return value


def _bad(message: str) -> InvalidRequest:
    return InvalidRequest(message, param="messages")
