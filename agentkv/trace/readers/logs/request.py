"""A bare request body on the line, with or without the reply's usage beside it; and a plain
`{"messages": [..]}`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agentkv.trace.call import Call, Where
from agentkv.trace.readers.exchange import Facts, call_of
from agentkv.trace.readers.fields import Record, pick, text, time_of
from agentkv.trace.readers.reading import Reading
from agentkv.trace.readers.wire import protocol_of

NAME = "request"

_SENT = ("stream", "temperature", "max_tokens", "max_completion_tokens", "tool_choice", "top_p")
"""With one of these the body is as it was sent, and a last assistant message was part of it."""


def matches(record: Record) -> bool:
    return protocol_of(record) is not None


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    reply = _reply(record)
    facts = Facts(
        id=text(pick(record, "id", "request_id", "requestId")),
        time=time_of(record),
        provider=text(record.get("provider")),
        ttft_ms=_ttft(record),
    )
    call = call_of(record, where, reading, reply, facts)
    yield call if reply is not None or any(k in record for k in _SENT) else _closed(call)


def _reply(record: Record) -> Any:
    """A reply, or only its usage, that somebody logged into the body of the request."""
    found = pick(record, "response", "reply", "completion", "output", "answer")
    usage = pick(record, "usage", "usage_metadata", "usageMetadata", "token_usage")
    if found is None and "choices" in record:
        found = {k: record[k] for k in ("choices", "usage") if k in record}
    if isinstance(usage, dict):
        if isinstance(found, dict):
            return {"usage": usage, **found}
        return {"usage": usage, "content": found if isinstance(found, str) else None}
    return found


def _ttft(record: Record) -> float | None:
    for key, unit in (("ttft_ms", 1.0), ("time_to_first_token_ms", 1.0), ("ttft", 1000.0)):
        value = record.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
            return float(value) * unit
    return None


def _closed(call: Call) -> Call:
    """A conversation that ends with the model's words is a call and its answer."""
    last = call.parts[-1] if call.parts else None
    if last is None or last.role != "assistant":
        return call
    return replace(call, parts=call.parts[:-1], answer=last.pieces)
