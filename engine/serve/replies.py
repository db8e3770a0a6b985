"""Reply bodies of chat and text completions."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from agentkv.engine.serve.usage import Usage


class Function(msgspec.Struct, kw_only=True):
    """`tool_calls[].function`; `arguments` is JSON as text."""

    name: str
    arguments: str


class MessageCall(msgspec.Struct, kw_only=True):
    """`choices[].message.tool_calls[]`."""

    id: str
    type: Literal["function"] = "function"
    function: Function


class Message(msgspec.Struct, kw_only=True):
    """`choices[].message`. `content` is null where the answer is calls and nothing else."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[MessageCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, kw_only=True):
    """`choices[]` of a chat completion."""

    index: int
    message: Message
    finish_reason: str
    stop_reason: str | int | None = None
    logprobs: dict[str, Any] | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, kw_only=True):
    """The reply of `/v1/chat/completions`."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | UnsetType = UNSET


class FunctionPart(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`delta.tool_calls[].function`: the name comes once, then pieces of the arguments."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class CallPart(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`delta.tool_calls[]`: the first of a call has its id and type, later ones have not."""

    index: int
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionPart


class Delta(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`choices[].delta`: only what is new."""

    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallPart] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, kw_only=True):
    """`choices[]` of a chat chunk."""

    index: int
    delta: Delta
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType = UNSET
    logprobs: dict[str, Any] | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct, kw_only=True):
    """One event of a streamed chat completion."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class TextChoice(msgspec.Struct, kw_only=True):
    """`choices[]` of a text completion, whole or in a chunk."""

    index: int
    text: str
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: dict[str, Any] | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class TextCompletion(msgspec.Struct, kw_only=True):
    """The reply of `/v1/completions`, and one event of a streamed one."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
