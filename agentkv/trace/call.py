"""`Call`: one request of a log, in the form that every later room reads.

A reader turns a line of some log into a `Call`; nothing behind the readers knows a log format. The
prompt is a sequence of parts in the order in which the provider renders them (tools, then system,
then messages, for nearly all), and a part is a sequence of pieces. Random ids that no template
renders (tool-call ids, run ids) are not in it, so that two calls that are sent the same are equal.

What is not known is None, and never a zero: `usage.cached` of None is "the provider did not say".
A hash trace has no text: its calls have `blocks` and no parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Literal

from agentkv.engine.types import IntArray

PieceKind = Literal[
    "text",
    "tool",  # the definition of a tool; `name` is its name
    "tool_call",  # of an assistant; `name` is the tool's
    "tool_result",
    "reasoning",
    "image",  # `text` is the data, its URL or its digest
    "audio",
    "file",
    "document",  # `name` is its id or title, where it has one
    "schema",  # of the answer
]


def digest(text: str) -> str:
    """16 hex characters that stand for a text (BLAKE2b)."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Piece:
    """The smallest unit that a request declares: a block of content, a tool, a tool call.

    `text`: as it is sent; tools and tool calls as the JSON text of the log, key order kept.
    `marker`: seconds to live of a cache breakpoint that ends here (0: the provider's default).
    `redacted`: `text` is empty and only `key` and `size` (characters) are known.
    """

    kind: PieceKind
    text: str
    name: str | None = None
    marker: int | None = None
    redacted: bool = False
    key: str = ""
    """Digest of kind, name and text; filled in when empty."""
    size: int = 0
    """Characters of the text; filled in when 0."""

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", digest(f"{self.kind}\0{self.name or ''}\0{self.text}"))
        if not self.size:
            object.__setattr__(self, "size", len(self.text))


@dataclass(frozen=True)
class Part:
    """A stretch of the prompt under one name: `tools`, `system`, `messages[3]`, `response_format`.

    `kind`: as a segment's (tools, instructions, examples, documents, memory, history, context,
    question). `role`: system, developer, user, assistant, tool; None for tools.
    """

    name: str
    kind: str
    role: str | None
    pieces: tuple[Piece, ...]

    @cached_property
    def key(self) -> str:
        """Digest of role and pieces, in order."""
        return digest("\0".join([self.role or "", *(p.key for p in self.pieces)]))

    @property
    def text(self) -> str:
        return "\n".join(p.text for p in self.pieces)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them; None where it did not say.

    `prompt` is the whole prompt, cached tokens included, whatever the provider calls so.
    """

    prompt: int | None = None
    cached: int | None = None
    written: int | None = None
    completion: int | None = None


@dataclass(frozen=True, slots=True)
class Where:
    """Which line of which log (1-based; the record's number in a file that is one JSON value)."""

    file: str
    line: int


@dataclass(frozen=True)
class Call:
    """One request, and what is known of its reply.

    `time`: seconds since the epoch, or since the start of the trace. `session`: as the log names it
    (thread, conversation, trace id), None when it does not. `settings`: what may be part of the
    prefix beside the text (`tool_choice`, `response_format`, `thinking`, ...), as canonical JSON.
    `answer`: the pieces of the reply that a later prompt may hold.
    `blocks` (int32 `[n]`), `block_size`, `length`: of a hash trace only; equal ids in equal places
    are equal text up to there.
    """

    where: Where
    model: str = ""
    provider: str = "openai"
    id: str | None = None
    time: float | None = None
    session: str | None = None
    user: str | None = None
    salt: str | None = None
    """`cache_salt`, `prompt_cache_key` of a tenant, and their like: another one shares nothing."""
    parts: tuple[Part, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    answer: tuple[Piece, ...] = ()
    usage: Usage = Usage()
    error: str | None = None
    """Why the provider refused or failed the call; such a call fills no cache."""
    ttft_ms: float | None = None
    blocks: IntArray | None = None
    block_size: int = 0
    length: int = 0
    spans: tuple[tuple[str, int, int], ...] = ()
    """Of a log that has digests and token spans instead of text: name, start, end."""
