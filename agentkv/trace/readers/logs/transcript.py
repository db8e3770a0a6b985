"""Whole sessions, one a line: every answer of the model in it was a call of its own.

Recognised by `request_points` (the places of the answers); `format="transcript"` reads any line with
messages so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentkv.trace.call import Call, Where
from agentkv.trace.readers.exchange import Facts, NoRequest, call_of
from agentkv.trace.readers.fields import Record, items, session_of, time_of
from agentkv.trace.readers.messages import message_of
from agentkv.trace.readers.reading import Reading

NAME = "transcript"


def matches(record: Record) -> bool:
    return isinstance(record.get("request_points"), list) and isinstance(
        record.get("messages"), list
    )


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    messages = items(record.get("messages"))
    points = [i for i, m in enumerate(messages) if message_of(m).role == "assistant"]
    if not points:
        raise NoRequest("the session has no answer of a model")
    given = items(record.get("request_points"))
    if given:
        points = [i for i in given if isinstance(i, int) and 0 < i <= len(messages)]
    session = session_of(record) or f"{where.file}:{where.line}"
    yield from replayed(record, messages, points, where, reading, session)


def replayed(
    record: Record,
    messages: list[Any],
    points: list[int],
    where: Where,
    reading: Reading,
    session: str,
) -> Iterator[Call]:
    """One call for each place of an answer, with everything before it as its prompt."""
    base = {k: v for k, v in record.items() if k in ("model", "tools", "functions", "system")}
    for point in points:
        reply = {"message": messages[point]} if point < len(messages) else None
        body = {**base, "messages": messages[:point]}
        facts = Facts(session=session, time=time_of(record))
        yield call_of(body, where, reading, reply, facts)
