"""What a model said, taken apart: text, reasoning, and the tools it wants called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool. `arguments` is JSON text, exactly as it was sampled."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of the call at `index`. The first one has `id` and `name`, later ones arguments."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """What is new in an answer."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()
