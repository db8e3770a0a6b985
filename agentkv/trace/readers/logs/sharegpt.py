"""ShareGPT: `{"conversations": [{"from": "human", "value": ..}, ..]}`.

A line that ends with the human is one request. A line that ends with the model is a whole
conversation, in which every answer was a call; answers that an earlier line already had are its
history, so that a log of growing conversations counts each call once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentkv.trace.call import Call, Where, digest
from agentkv.trace.readers.exchange import Facts, call_of
from agentkv.trace.readers.fields import (
    Record,
    dumps,
    items,
    loads,
    pick,
    session_of,
    text,
    time_of,
)
from agentkv.trace.readers.logs.transcript import replayed
from agentkv.trace.readers.messages import message_of
from agentkv.trace.readers.reading import Reading

NAME = "sharegpt"


def matches(record: Record) -> bool:
    turns = pick(record, "conversations", "conversation")
    return isinstance(turns, list) and all(
        isinstance(t, dict) and ("from" in t or "role" in t) for t in turns
    )


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    messages: list[Any] = list(items(pick(record, "conversations", "conversation")))
    if (system := text(record.get("system"))) is not None:
        messages.insert(0, {"role": "system", "content": system})
    body = {**record, "messages": messages}
    body.pop("system", None)
    if isinstance(tools := loads(record.get("tools")), list):
        body["tools"] = tools
    session = session_of({k: v for k, v in record.items() if k != "conversation"})
    session = session or text(record.get("id"))
    roles = [message_of(m).role for m in messages]
    if not roles or roles[-1] != "assistant":
        facts = Facts(session=session, time=time_of(record))
        yield call_of(body, where, reading, facts=facts)
        return
    points = []
    for point, role in enumerate(roles):
        if role == "assistant":
            turn = digest(dumps([session, messages[max(0, point - 1) : point + 1]]))
            if reading.turns.get(turn) is None or point == len(messages) - 1:
                points.append(point)
            reading.turns.put(turn, True)
    yield from replayed(
        body, messages, points, where, reading, session or f"{where.file}:{where.line}"
    )
