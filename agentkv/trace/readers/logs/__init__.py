"""The formats of lines, one a file. Each has NAME, `matches(record)` and `calls(record, ...)`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from agentkv.trace.call import Call, Where
from agentkv.trace.readers.fields import Record
from agentkv.trace.readers.logs import (
    batch,
    http,
    langfuse,
    langsmith,
    litellm,
    mooncake,
    otel,
    recording,
    redacted,
    request,
    sharegpt,
    transcript,
    weka,
)
from agentkv.trace.readers.reading import Reading


class Format(Protocol):
    """A format of log records."""

    NAME: str

    def matches(self, record: Record) -> bool:
        """Whether a record is in this format, by its keys only."""
        ...

    def calls(self, record: Record, where: Where, reading: Reading) -> Iterator[Call]:
        """The calls of a record. Raises NoRequest where it has none that can be read; what is no
        model call at all is counted in `reading.problems.skipped`."""
        ...


FORMATS: tuple[Format, ...] = (
    recording,
    redacted,
    mooncake,
    weka,
    otel,
    langsmith,
    langfuse,
    litellm,
    batch,
    http,
    sharegpt,
    transcript,
    request,
)
"""In the order in which they are asked."""

PROTOCOLS = ("openai", "responses", "anthropic", "bedrock", "gemini", "completion")
"""Names that `request` also answers to: bare bodies of one protocol."""


def names() -> tuple[str, ...]:
    """What `format=` may be."""
    return (*(f.NAME for f in FORMATS), *PROTOCOLS)


def format_of(record: Record) -> Format | None:
    """The format of a record, or None."""
    return next((f for f in FORMATS if f.matches(record)), None)
