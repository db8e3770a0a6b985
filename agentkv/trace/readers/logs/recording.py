"""agentkv's own recordings, of `serve --record` and of the LangChain handler; their shape is in
`agentkv.engine.recording`.

With the text a line is a request like any other. Without it the spans and their items become parts
and redacted pieces: an item of n tokens has a size of 4 n characters, from which the renderer makes
n ids again. An answer comes back in the next prompt under the same digest, and is one piece there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agentkv.trace.call import Call, Part, Piece, PieceKind, Usage, Where
from agentkv.trace.readers.exchange import Facts, NoRequest, call_of
from agentkv.trace.readers.fields import Record, canonical, count, items, mapping, seconds, text
from agentkv.trace.readers.reading import Reading

NAME = "agentkv"
VERSION = 1
CHARACTERS = 4
"""Of a token, as the renderer counts redacted pieces."""


def matches(record: Record) -> bool:
    version = record.get("agentkv")
    return isinstance(version, int) and not isinstance(version, bool)


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    if record["agentkv"] != VERSION:
        raise NoRequest(
            f"a recording of version {record['agentkv']}; this release reads version {VERSION}"
        )
    facts = _facts(record)
    salt = text(record.get("salt"))
    if isinstance(record.get("text"), dict):
        call = call_of(record["text"], where, reading, record.get("reply"), facts)
        yield replace(call, salt=salt) if salt else call
        return
    spans = [s for s in (_span(raw, reading) for raw in items(record.get("spans"))) if s]
    if not spans:
        raise NoRequest("the recording has neither spans nor text")
    answer = _answer(record.get("answer"), reading)
    yield Call(
        where=where,
        model=facts.model or "",
        provider=facts.provider or NAME,
        id=facts.id,
        time=facts.time,
        session=facts.session,
        user=facts.user,
        salt=salt,
        parts=tuple(part for part, _, _ in spans if part.pieces),
        settings=facts.settings,
        answer=answer,
        usage=facts.usage,
        error=facts.error,
        ttft_ms=facts.ttft_ms,
        length=max(end for _, _, end in spans),
        spans=tuple((part.name, start, end) for part, start, end in spans),
    )


def _facts(record: Record) -> Facts:
    wait = record.get("ttft_ms")
    if wait is None:
        wait = mapping(record.get("ms")).get("ttft")
    return Facts(
        id=text(record.get("id")),
        time=seconds(record.get("time")),
        session=text(record.get("session")),
        user=text(record.get("user")),
        model=text(record.get("model")),
        provider=text(record.get("provider")) or NAME,
        error=text(record.get("error")),
        usage=Usage(
            count(record.get("prompt_tokens")),
            count(record.get("cached_tokens")),
            count(record.get("written_tokens")),
            count(record.get("completion_tokens")),
        ),
        ttft_ms=float(wait) if isinstance(wait, (int, float)) else None,
        settings={
            k: canonical(v) for k, v in mapping(record.get("settings")).items() if v is not None
        },
    )


def _span(raw: object, reading: Reading) -> tuple[Part, int, int] | None:
    """`[name, kind, role, start, end, digest, items]`; a span of the template has no pieces, for
    the renderer writes that itself."""
    if not isinstance(raw, list) or len(raw) < 6:
        return None
    name, kind, role, key = raw[0], raw[1], raw[2], raw[5]
    start, end = count(raw[3]), count(raw[4])
    if not isinstance(name, str) or not isinstance(kind, str):
        return None
    if start is None or end is None or end < start:
        return None
    if kind == "template" or name == "generation_prompt":
        return Part(name, kind, text(role), ()), start, end
    word = _piece_kind(kind, text(role))
    pieces = tuple(
        p for item in items(raw[6] if len(raw) > 6 else None) if (p := _item(item, word))
    )
    said = reading.answers.get(key) if role == "assistant" and isinstance(key, str) else None
    if said is not None and said <= end - start:
        # The words of an earlier reply: the ids that the replay has of it, then the template's.
        rest = (
            (_redacted("text", None, f"{key}/rest", end - start - said),)
            if end - start > said
            else ()
        )
        pieces = (_redacted("text", None, key, said), *rest)
    if not pieces:
        pieces = (_redacted(word, None, str(key), end - start),)
    return Part(name, kind, text(role), pieces), start, end


def _piece_kind(kind: str, role: str | None) -> PieceKind:
    if kind == "tools":
        return "tool"
    if kind == "documents":
        return "document"
    return "tool_result" if role == "tool" else "text"


def _item(raw: object, kind: PieceKind) -> Piece | None:
    """`[name | null, digest, tokens]`."""
    if not isinstance(raw, list) or len(raw) < 3 or not isinstance(raw[1], str):
        return None
    return _redacted(kind, text(raw[0]), raw[1], count(raw[2]) or 0)


def _answer(raw: object, reading: Reading) -> tuple[Piece, ...]:
    """`[digest, tokens]` of the reply."""
    if not isinstance(raw, list) or len(raw) < 2 or not isinstance(raw[0], str):
        return ()
    tokens = count(raw[1])
    if not tokens:
        return ()
    reading.answers.put(raw[0], tokens)
    return (_redacted("text", None, raw[0], tokens),)


def _redacted(kind: PieceKind, name: str | None, key: str, tokens: int) -> Piece:
    return Piece(kind, "", name, redacted=True, key=key, size=tokens * CHARACTERS)
