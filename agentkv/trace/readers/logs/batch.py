"""Batches of OpenAI, Anthropic and Mistral: a file of requests, and a file of their replies.

The two are joined by `custom_id` where both are given, in any order of files: `read` takes the
files of replies first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agentkv.trace.call import Call, Where
from agentkv.trace.readers.exchange import Facts, call_of
from agentkv.trace.readers.fields import Record, mapping, pick, text
from agentkv.trace.readers.reading import Reading
from agentkv.trace.readers.replies import reply_of

NAME = "batch"


def matches(record: Record) -> bool:
    if "custom_id" not in record:
        return "key" in record and isinstance(record.get("request"), dict)  # Gemini's
    return any(k in record for k in ("body", "params", "response", "result", "error"))


def is_reply(record: Record) -> bool:
    """A line of the file of replies."""
    return matches(record) and not any(k in record for k in ("body", "params", "request"))


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    name = text(pick(record, "custom_id", "key"))
    if is_reply(record):
        frame = mapping(pick(record, "response", "result"))
        found = reply_of(
            pick(frame, "body", "message") or {"error": record.get("error") or frame.get("error")},
            frame.get("status_code"),
        )
        reading.replies.put(name, found)
        reading.problems.skipped["reply of a batch"] += 1
        return
    body = pick(record, "body", "params", "request")
    call = call_of(body, where, reading, facts=Facts(url=text(record.get("url")) or "", id=name))
    found_reply = reading.replies.pop(name) if name else None
    if found_reply is not None:
        call = replace(
            call,
            answer=found_reply.answer,
            usage=found_reply.usage,
            error=found_reply.error,
            time=call.time if call.time is not None else found_reply.time,
        )
    yield call
