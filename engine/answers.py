"""Reads the events of one call into answers: text, reasoning, tool calls, and how each ended.

The server and the in-process client read alike, so what a client sees is the same either way, in a
stream and without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv.engine.text.calls.answer import Answer, AnswerDelta, CallDelta
from agentkv.engine.types import Choice, RequestOutput, StreamEvent

if TYPE_CHECKING:
    from agentkv.engine.chat import Chat
    from agentkv.engine.text.calls.reader import AnswerReader


@dataclass(frozen=True, slots=True)
class Ended:
    """A choice that came to its end."""

    answer: Answer
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event adds to a choice. `finish_reason` on the last piece of a choice."""

    delta: AnswerDelta
    finish_reason: str | None = None


@dataclass(slots=True)
class _Open:
    """A choice that is being read."""

    reader: AnswerReader
    token_ids: list[int] = field(default_factory=list)


class Answers:
    """The choices of one call. `chat` is None for a raw prompt, whose output is all text.

    A finished choice is remembered for exact replay before its last piece is handed out, so that
    the client's next request, however soon, finds it.
    """

    def __init__(self, chat: Chat | None) -> None:
        self._chat = chat
        self._open: dict[int, _Open] = {}
        self._texts: dict[int, list[str]] = {}
        self._ended: dict[int, Ended] = {}

    def feed(self, event: StreamEvent) -> Piece | None:
        """The piece of an event; None for one that belongs to no choice."""
        if event.index < 0 or event.output is not None or event.index in self._ended:
            return None
        return self._read(event.index, event.text, event.token_ids, event.finish_reason)

    def end(self, output: RequestOutput) -> list[Ended]:
        """Every choice of the finished call, in order; those that no event told of are read now."""
        return [self._whole(choice) for choice in output.choices]

    def _whole(self, choice: Choice) -> Ended:
        if choice.index not in self._ended:
            # Nothing of it was streamed, or not its end: it is read afresh, from its beginning.
            self._open.pop(choice.index, None)
            self._texts.pop(choice.index, None)
            self._read(choice.index, choice.text, choice.token_ids, choice.finish_reason)
        return self._ended[choice.index]

    def _read(self, index: int, text: str, ids: tuple[int, ...], reason: str | None) -> Piece:
        chat = self._chat
        if chat is None:
            said = self._texts.setdefault(index, [])
            said.append(text)
            if reason is not None:
                self._ended[index] = Ended(Answer("".join(said)), reason)
            return Piece(AnswerDelta(text), reason)
        one = self._open.get(index)
        if one is None:
            one = self._open[index] = _Open(chat.reader(index))
        one.token_ids.extend(ids)
        delta = one.reader.feed(text, ids)
        if reason is None:
            return Piece(delta)
        delta = joined(delta, one.reader.finish())
        answer = one.reader.answer
        if reason != "abort":
            chat.remember(answer, one.token_ids, reason)
        said_reason = chat.finish_reason(reason, answer)
        self._ended[index] = Ended(answer, said_reason)
        del self._open[index]
        return Piece(delta, said_reason)


def joined(one: AnswerDelta, two: AnswerDelta) -> AnswerDelta:
    """Both deltas as one."""
    return AnswerDelta(one.text + two.text, one.reasoning + two.reasoning, one.calls + two.calls)


def steps(calls: tuple[CallDelta, ...]) -> Iterator[CallDelta]:
    """The deltas of tool calls as they go over the wire: a call's first has its id, its name and no
    arguments, later ones have arguments only."""
    for call in calls:
        if call.id is not None or call.name is not None:
            yield CallDelta(call.index, call.id, call.name)
        if call.arguments:
            yield CallDelta(call.index, arguments=call.arguments)
