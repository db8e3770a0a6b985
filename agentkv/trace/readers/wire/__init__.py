"""The bodies of requests, one protocol a file; `prompt_of` finds out which one a body is."""

from __future__ import annotations

from typing import Protocol

from agentkv.trace.readers.fields import Record
from agentkv.trace.readers.wire import anthropic, bedrock, chat, completion, gemini, responses
from agentkv.trace.readers.wire.prompt import Prompt


class Wire(Protocol):
    """A protocol: what tells its bodies, and what they say."""

    NAME: str

    def matches(self, body: Record, url: str = "") -> bool:
        """Whether a body is written in it."""
        ...

    def prompt(self, body: Record, url: str = "") -> Prompt:
        """The prompt of a body that matches."""
        ...


PROTOCOLS: tuple[Wire, ...] = (gemini, bedrock, anthropic, responses, chat, completion)
"""In the order in which they are asked: the telling ones first, the general one late."""


def prompt_of(body: Record, url: str = "") -> Prompt | None:
    """The prompt of a request's body, or None where it is no request that we know."""
    for protocol in PROTOCOLS:
        if protocol.matches(body, url):
            return protocol.prompt(body, url)
    return None


def protocol_of(body: Record, url: str = "") -> str | None:
    """The name of the protocol that a body is written in."""
    return next((p.NAME for p in PROTOCOLS if p.matches(body, url)), None)
