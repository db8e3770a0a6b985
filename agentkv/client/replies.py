"""Replies of `/v1/chat/completions` and `/v1/completions`, whole or in chunks, of any server."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentkv.client.base import ChatDelta, ChatReply, ReplyChoice
from agentkv.engine.text.calls.answer import CallDelta, ToolCall
from agentkv.report.report import CacheReport

Reporter = Callable[[Mapping[str, Any]], CacheReport]
"""Makes the report of a reply, of which `usage` and `timings` are looked at."""


def own_report(data: Mapping[str, Any]) -> CacheReport:
    """The report in a reply of `agentkv serve`, which has it all."""
    return CacheReport.from_usage(data.get("usage") or {})


def reply(data: Mapping[str, Any], report: Reporter = own_report) -> ChatReply:
    """A whole reply. Raises ValueError when it has no choices."""
    choices = data.get("choices")
    if not isinstance(choices, Sequence) or not choices:
        raise ValueError("the reply has no choices.")
    scores = _scores(data.get("usage"))
    return ChatReply(
        id=str(data.get("id") or ""),
        model=str(data.get("model") or ""),
        choices=tuple(_choice(i, c, scores) for i, c in enumerate(choices)),
        report=report(data),
    )


def _choice(i: int, choice: Mapping[str, Any], scores: tuple[float, float] | None) -> ReplyChoice:
    message = choice.get("message")
    said = message if isinstance(message, Mapping) else {"content": choice.get("text")}
    text, thought = texts(said)
    calls = said.get("tool_calls")
    ids = choice.get("token_ids")
    return ReplyChoice(
        index=int(choice.get("index", i)),
        text=text,
        finish_reason=choice.get("finish_reason"),
        logprobs=choice.get("logprobs"),
        tool_calls=tuple(_call(c) for c in calls) if isinstance(calls, Sequence) else (),
        reasoning=thought,
        opener_scores=scores,
        token_ids=tuple(int(t) for t in ids) if isinstance(ids, Sequence) else None,
    )


def texts(message: Mapping[str, Any]) -> tuple[str, str]:
    """Text and reasoning of a message or a delta.

    Content is text, or parts of it (Mistral has its thoughts among them). Reasoning has two names:
    `reasoning_content` (DeepSeek, llama.cpp, ours) and `reasoning` (OpenRouter, Groq, vLLM).
    """
    content = message.get("content")
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    if isinstance(content, Sequence) and not isinstance(content, str):
        said = "".join(_part(p) for p in content if _kind(p) != "thinking")
        thought = str(thought) + "".join(_part(p) for p in content if _kind(p) == "thinking")
        return said, thought
    return str(content or ""), thought if isinstance(thought, str) else ""


def _kind(part: Any) -> Any:
    return part.get("type") if isinstance(part, Mapping) else None


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    inner = part.get("text", part.get("thinking"))
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        return "".join(_part(p) for p in inner)
    return str(inner or "")


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function") or {}
    return ToolCall(
        str(call.get("id") or _new_id()),
        str(function.get("name") or ""),
        _arguments(function.get("arguments")),
    )


def _arguments(value: Any) -> str:
    """Arguments as text, also where a server sends the object itself."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _new_id() -> str:
    """An id for a call of a server that gives none: the tool's result must name one."""
    return f"call_{secrets.token_hex(8)}"


def _scores(usage: Any) -> tuple[float, float] | None:
    block = usage.get("agentkv") if isinstance(usage, Mapping) else None
    found = block.get("tool_choice") if isinstance(block, Mapping) else None
    return (float(found["opener"]), float(found["text"])) if isinstance(found, Mapping) else None


@dataclass(slots=True)
class _GrowingCall:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Growing:
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: dict[int, _GrowingCall] = field(default_factory=dict)
    finish_reason: str | None = None
    scored: list[Any] = field(default_factory=list)
    token_ids: list[int] | None = None

    def call(self, position: int, data: Mapping[str, Any]) -> Iterator[CallDelta]:
        """The deltas of a piece of a call: its beginning (id and name), then its arguments.

        A piece without an index belongs to the call in its place, or begins a new one where it has
        an id of its own: some servers send every call whole, and number none.
        """
        function = data.get("function") or {}
        number = data.get("index")
        if not isinstance(number, int):
            said = data.get("id")
            known = [i for i, c in self.calls.items() if said and c.id == said]
            number = known[0] if known else (len(self.calls) if said else position)
        growing = self.calls.get(number)
        if growing is None:
            growing = _GrowingCall(
                str(data.get("id") or _new_id()), str(function.get("name") or "")
            )
            self.calls[number] = growing
            yield CallDelta(number, growing.id, growing.name)
        text = _arguments(function.get("arguments"))
        if text:
            growing.arguments.append(text)
            yield CallDelta(number, arguments=text)


@dataclass(slots=True)
class Assembly:
    """Puts the chunks of a stream together, so that its end has the same reply as a whole call."""

    id: str = ""
    model: str = ""
    usage: Mapping[str, Any] | None = None
    timings: Mapping[str, Any] | None = None
    choices: dict[int, _Growing] = field(default_factory=dict)

    def feed(self, data: Mapping[str, Any]) -> list[ChatDelta]:
        """The deltas of one chunk."""
        self.id = self.id or str(data.get("id") or "")
        self.model = self.model or str(data.get("model") or "")
        self.usage = data.get("usage") or self.usage
        self.timings = data.get("timings") or self.timings
        out: list[ChatDelta] = []
        for i, choice in enumerate(data.get("choices") or ()):
            index = int(choice.get("index", i))
            growing = self.choices.setdefault(index, _Growing())
            found = choice.get("delta")
            delta = found if isinstance(found, Mapping) else {"content": choice.get("text")}
            text, thought = texts(delta)
            calls = tuple(
                piece
                for position, call in enumerate(delta.get("tool_calls") or ())
                for piece in growing.call(position, call)
            )
            reason = choice.get("finish_reason")
            scored = choice.get("logprobs")
            if isinstance(scored, Mapping):
                growing.scored.extend(scored.get("content") or ())
            if isinstance(choice.get("token_ids"), Sequence):
                growing.token_ids = [*(growing.token_ids or ()), *choice["token_ids"]]
            growing.texts.append(text)
            growing.thoughts.append(thought)
            growing.finish_reason = reason or growing.finish_reason
            if text or thought or calls or reason:
                out.append(
                    ChatDelta(
                        index=index,
                        text=text,
                        reasoning=thought,
                        calls=calls,
                        finish_reason=reason,
                    )
                )
        return out

    @property
    def complete(self) -> bool:
        """Whether every choice came to its end."""
        return bool(self.choices) and all(c.finish_reason for c in self.choices.values())

    def reply(self, report: Reporter = own_report) -> ChatReply:
        scores = _scores(self.usage)
        return ChatReply(
            id=self.id,
            model=self.model,
            choices=tuple(
                ReplyChoice(
                    index=index,
                    text="".join(c.texts),
                    finish_reason=c.finish_reason,
                    logprobs={"content": c.scored} if c.scored else None,
                    tool_calls=tuple(
                        ToolCall(call.id, call.name, "".join(call.arguments))
                        for _, call in sorted(c.calls.items())
                    ),
                    reasoning="".join(c.thoughts),
                    opener_scores=scores,
                    token_ids=tuple(c.token_ids) if c.token_ids is not None else None,
                )
                for index, c in sorted(self.choices.items())
            ),
            report=report({"usage": self.usage, "timings": self.timings}),
        )


def prefilled(reply: ChatReply) -> ChatReply:
    """The reply without the one token that another server cannot be kept from making."""
    return replace(
        reply,
        choices=tuple(
            ReplyChoice(index=c.index, text="", finish_reason="length") for c in reply.choices
        ),
    )
