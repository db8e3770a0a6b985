"""One request body and its reply into a `Call`: what nearly every log format comes down to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentkv.trace.call import Call, Part, Usage, Where
from agentkv.trace.readers.fields import Record, loads, mapping, session_of, text, time_of, user_of
from agentkv.trace.readers.reading import Reading
from agentkv.trace.readers.replies import NOTHING, Reply, reply_of
from agentkv.trace.readers.usage import merged
from agentkv.trace.readers.wire import prompt_of
from agentkv.trace.readers.wire.prompt import Prompt


@dataclass(frozen=True)
class Facts:
    """What the line around a body says; it comes before what body and reply say."""

    url: str = ""
    status: Any = None
    id: str | None = None
    time: float | None = None
    session: str | None = None
    user: str | None = None
    model: str | None = None
    provider: str | None = None
    error: str | None = None
    usage: Usage = NOTHING
    ttft_ms: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


class NoRequest(Exception):
    """A record that has a known frame, but no request that we can read; the text says why."""


def call_of(
    body: Any, where: Where, reading: Reading, reply: Any = None, facts: Facts | None = None
) -> Call:
    """The call of a request body (an object or its JSON) and of its reply in any shape.

    Raises NoRequest where the body is no request.
    """
    facts = facts or Facts()
    body = loads(body)
    prompt = prompt_of(body, facts.url) if isinstance(body, dict) else None
    if prompt is None:
        keys = ", ".join(map(str, list(mapping(body))[:6]))
        raise NoRequest(
            f"the request is in no form that is known (keys: {keys})"
            if keys
            else "there is no request body in it"
        )
    return join(prompt, body, where, reading, reply_of(reply, facts.status), facts)


def join(
    prompt: Prompt, body: Record, where: Where, reading: Reading, reply: Reply, facts: Facts
) -> Call:
    """A prompt, its reply and the facts around them as one call."""
    parts, held = _continued(prompt, where, reading)
    messages = tuple(p for p in parts if p.name.startswith("messages["))
    if reply.id or held:
        answer = (Part("", "history", "assistant", reply.answer),) if reply.answer else ()
        for key in {reply.id, held} - {None}:
            reading.histories.put(key, (*messages, *answer))
    time = facts.time if facts.time is not None else time_of(body)
    return Call(
        where=where,
        model=prompt.model or facts.model or reply.model or "",
        provider=facts.provider or prompt.provider,
        id=facts.id or reply.id,
        time=time if time is not None else reply.time,
        session=facts.session or session_of(body, mapping(body.get("extra_body"))),
        user=facts.user or user_of(body),
        salt=prompt.salt,
        parts=parts,
        settings={**prompt.settings, **facts.settings},
        answer=reply.answer,
        usage=merged(facts.usage, reply.usage),
        error=facts.error or reply.error,
        ttft_ms=facts.ttft_ms,
    )


def _continued(
    prompt: Prompt, where: Where, reading: Reading
) -> tuple[tuple[Part, ...], str | None]:
    """The prompt with the history that only the provider was sent before; and the conversation
    that goes on under one id."""
    held = text(prompt.open)
    if held is None:
        return prompt.parts, None
    conversation = held if held.startswith("conv_") else None
    before = reading.histories.get(held)
    if before is None:
        if conversation is None or prompt.provider == "google":
            reading.problems.note(
                "history elsewhere",
                where.file,
                where.line,
                f"it continues {held}, which is not in the log: what came before is unknown",
            )
        return prompt.parts, conversation
    head = [p for p in prompt.parts if not p.name.startswith("messages[")]
    tail = [p for p in prompt.parts if p.name.startswith("messages[")]
    older = [replace(p, kind="history" if p.kind == "question" else p.kind) for p in before]
    numbered = [replace(p, name=f"messages[{i}]") for i, p in enumerate([*older, *tail])]
    return (*head, *numbered), conversation
