"""WEKA's traces of coding agents: one line a session with its requests, sub-agents inside it.

The ids of the blocks are local to the line, so the calls of different lines share nothing: the
line's id is their salt. Times count from the start of the session.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.trace.call import Call, Usage, Where
from agentkv.trace.readers.exchange import NoRequest
from agentkv.trace.readers.fields import Record, count, items, mapping, text
from agentkv.trace.readers.logs.mooncake import block_ids
from agentkv.trace.readers.reading import Reading

NAME = "weka"


def matches(record: Record) -> bool:
    return isinstance(record.get("requests"), list) and (
        "block_size" in record or "hash_id_scope" in record
    )


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    name = text(record.get("id")) or f"{where.file}:{where.line}"
    size = count(record.get("block_size"))
    if not size:
        raise NoRequest("its block_size is no number")
    salt = None if record.get("hash_id_scope") == "global" else name
    yield from _requests(record, where, name, salt, size, 0.0)


def _requests(
    record: Record, where: Where, session: str, salt: str | None, size: int, start: float
) -> Iterator[Call]:
    for raw in items(record["requests"]):
        request = mapping(raw)
        at = request.get("t")
        time = start + float(at) if isinstance(at, (int, float)) else start
        if isinstance(request.get("requests"), list):  # a sub-agent: a session of its own
            agent = text(request.get("agent_id")) or "agent"
            yield from _requests(request, where, f"{session}/{agent}", salt, size, time)
        elif isinstance(request.get("hash_ids"), list):
            length = count(request.get("in"))
            yield Call(
                where=where,
                model=text(request.get("model")) or "",
                provider="weka",
                time=time,
                session=session,
                salt=salt,
                usage=Usage(completion=count(request.get("out"))),
                blocks=block_ids(request["hash_ids"]),
                block_size=size,
                length=length if length is not None else size * len(request["hash_ids"]),
            )
