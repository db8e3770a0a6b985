"""Recordings of live calls: what `agentkv serve --record` and the LangChain handler write, line by
line, and `agentkv trace` reads.

One JSON object a line; every line stands alone, and a line that is cut off spoils no other.

    {"agentkv": 1,                    version of this schema; a reader refuses others
     "source": "serve",               or "langchain"
     "id": "req-7",                   the request's id; "req-7-0", ... where one request had several
     "time": 1764484704.25,           seconds since the epoch when the call arrived
     "session": "t-1" | null,         thread or conversation, as the caller named it
     "user": "u-9" | null,
     "model": "qwen2.5-0.5b",
     "provider": "agentkv",           who answered: agentkv, openai, anthropic, ...
     "salt": "3f2a..." | null,        digest of the cache salt, never the salt itself
     "node": "agent" | null,          LangGraph's node (langchain only)
     "tokenizer": "exact" | "estimate",  whether token numbers of `spans` are those of the model
     "prompt_tokens": 1841,           as counted by who answered; null where it was not said
     "cached_tokens": 1792 | null,    as measured by who answered; null is "not said", never 0
     "written_tokens": null,
     "completion_tokens": 21,
     "finish_reason": "stop" | null,
     "error": null,                   kind of the failure ("ContextLengthExceeded"); such a call
                                      filled no cache
     "ms": {"queue", "prefill", "ttft", "decode"},   where known
     "ttft_ms": 68.2 | null,
     "page_size": 1 | null,
     "settings": {...},               what another provider may put in front of the text or key its
                                      cache by (tool_choice, ...); of a schema its digest
     "spans": [[name, kind, role, start, end, digest, items], ...],
     "answer": [digest, tokens] | null,
     "miss": {"token", "reason", "segment", "detail"} | null,
                                      the engine's own verdict; `was` and `now` only with the text
     "text": {...}, "reply": {...}}   only with --record-text: the request as an OpenAI body
                                      (`messages`, `tools`, ... or `prompt`), and the answer as
                                      that of a chat completion

**Spans** are disjoint, sorted, and cover the prompt: `name` is `tools`, `documents`, `messages[3]`,
`generation_prompt`, ...; `kind` a segment's kind; `role` or null; tokens `[start, end)`; `digest` of
the content as the caller sent it (it tells "this text in another place" from "another text").

**Items** divide a span without a rest: `[name | null, digest, tokens]`, in order; the tokens sum to
`end - start`. Of `tools` one for each tool, with its name: the digest is of its definition, and the
tokens are the span's, shared out by length (their sum is exact, the parts are not). What the template
writes by itself is one item. Anything else is cut into chunks of 8 to 64 tokens that end where the
*content* says (see `chunks`), so that two prompts have the same chunks again soon behind a change,
wherever it moved them to. Hence, without any text: two prompts share a prefix up to the first item
that differs, and could have shared what other items they have in common.

`answer` has the digest that the span of this answer will have in the next prompt, where a client
sends it back as it was.

**Digests** are BLAKE2b: 12 hex digits of the token ids of a chunk (int32, little endian) or of a
tool's definition, 16 of the content of a span. They are the same in all files, so that two logs can
be compared, which also means that whoever can guess a text can check the guess. With a key
(`AGENTKV_RECORD_KEY`, one for all files that are to be compared) nobody without it can.

No torch here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from agentkv.engine.text.canonical import canonical_json, digest
from agentkv.engine.types import IntArray, Miss, Span

VERSION = 1
KEY_VARIABLE = "AGENTKV_RECORD_KEY"
LEAST, MOST = 8, 64
"""Tokens of a chunk."""
_ODDS = 16
"""One place in so many may end a chunk."""


class Digests:
    """Digests of content, keyed or not. `key`: None reads `AGENTKV_RECORD_KEY`, b"" is no key."""

    def __init__(self, key: bytes | None = None) -> None:
        if key is None:
            key = os.environ.get(KEY_VARIABLE, "").encode()
        # BLAKE2b takes 64 bytes; a longer key counts in full all the same.
        self._key = key if len(key) <= 64 else blake2b(key).digest()

    def bytes(self, data: bytes, digits: int = 12) -> str:
        """`digits` hex digits (even) for `data`."""
        return blake2b(data, digest_size=digits // 2, key=self._key).hexdigest()

    def ids(self, ids: IntArray) -> str:
        return self.bytes(np.asarray(ids, dtype="<i4").tobytes())

    def text(self, text: str) -> str:
        return self.bytes(text.encode("utf-8", "surrogatepass"))

    def content(self, known: str) -> str:
        """For a span, of the digest that the renderer gave its content."""
        return self.bytes(known.encode(), 16) if self._key else known[:16]

    def salt(self, salt: str | None) -> str | None:
        return None if salt is None else self.bytes(salt.encode("utf-8", "surrogatepass"), 16)


def chunks(ids: IntArray) -> list[tuple[int, int]]:
    """Cut token ids (int32 `[n]`) into runs `[start, end)` of `LEAST` to `MOST` (the last may be
    shorter), whose ends depend on the last four ids and not on the place."""
    n = len(ids)
    ends: list[int] = []
    if n > LEAST:
        wide = np.asarray(ids, dtype=np.int32).view(np.uint32).astype(np.uint64)
        mixed = wide[3:] * np.uint64(0x9E3779B97F4A7C15)
        for back, factor in enumerate((0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)):
            mixed ^= wide[2 - back : n - 1 - back] * np.uint64(factor)
        mixed *= np.uint64(0xD6E8FEB86659FD93)
        ends = (np.flatnonzero((mixed >> np.uint64(40)) % np.uint64(_ODDS) == 0) + 4).tolist()
    out: list[tuple[int, int]] = []
    start = 0
    for end in [*ends, n]:
        while end - start > MOST:
            out.append((start, start + MOST))
            start += MOST
        if end - start >= LEAST or (end == n and end > start):
            out.append((start, end))
            start = end
    return out


def span_rows(
    ids: IntArray,
    spans: Sequence[Span],
    digests: Digests,
    tools: Sequence[tuple[str, str]] = (),
) -> list[list[Any]]:
    """`spans` of a recording. `tools`: name and definition (JSON text) of each, in the order of the
    request. A prompt without spans is one span, `prompt`."""
    if not spans:
        spans = (Span(name="prompt", kind="context", start=0, end=len(ids)),)
    rows: list[list[Any]] = []
    for span in spans:
        own = ids[span.start : span.end]
        if span.kind == "tools" and span.items and span.items == tuple(name for name, _ in tools):
            items = _tool_items(tools, len(own), digests)
        elif span.kind == "template":
            items = [[None, digests.ids(own), len(own)]]
        else:
            items = [[None, digests.ids(own[a:b]), b - a] for a, b in chunks(own)]
        known = digests.content(span.digest) if span.digest else digests.ids(own)
        rows.append([span.name, span.kind, span.role, span.start, span.end, known, items])
    return rows


def _tool_items(tools: Sequence[tuple[str, str]], tokens: int, digests: Digests) -> list[list[Any]]:
    total = sum(len(text) for _, text in tools) or 1
    items: list[list[Any]] = []
    done = reached = 0
    for name, text in tools:
        reached += len(text)
        until = tokens * reached // total
        items.append([name, digests.text(text), until - done])
        done = until
    return items


def message_digest(text: str, reasoning: str = "", calls: Iterable[tuple[str, Any]] = ()) -> str:
    """The digest that the renderer gives a message without marks. `calls`: name and arguments of
    its tool calls, as JSON text or as a value."""
    said = [canonical_json([name, _value(arguments)]) for name, arguments in calls]
    return digest(text, reasoning, *said)


def _value(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return json.loads(arguments) if arguments else {}
    except (ValueError, RecursionError):
        return arguments


def miss_row(miss: Miss | None, *, quote: bool) -> dict[str, Any] | None:
    """`miss` of a recording; `quote`: with the text of both sides."""
    if miss is None:
        return None
    row: dict[str, Any] = {
        "token": miss.token,
        "reason": miss.reason,
        "segment": miss.segment,
        "detail": miss.detail,
    }
    return {**row, "was": miss.was, "now": miss.now} if quote else row
