"""Answers with tool calls, remembered by the ids of their calls.

A client sends a call back as an id, a name and arguments that it has parsed and written anew; its
text is gone. The id leads to the answer, and if everything in it is still the same, the answer is
fed back as the tokens that were sampled.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.engine.text.calls.answer import Answer
from agentkv.engine.text.calls.formats import THINK, UNTHINK
from agentkv.engine.text.messages import Message
from agentkv.engine.types import IntArray


@dataclass(frozen=True, slots=True)
class Piece:
    """Ids between two control tokens, or (`control`) one such token, and their text."""

    text: str
    ids: IntArray
    control: bool = False


@dataclass(frozen=True, slots=True)
class Sampled:
    """An answer as it was sampled.

    It continues the prompt's open end: `digest` stands for everything before that, `tail` is its
    text, and `pieces` are the ids of the open end and the answer together.
    """

    answer: Answer
    digest: bytes
    tail: str
    pieces: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        """About how much memory this takes."""
        size = sum(p.ids.nbytes + 4 * len(p.text) + 200 for p in self.pieces)
        said = self.answer
        texts = (said.text, said.reasoning, *(c.arguments + c.name for c in said.tool_calls))
        return size + 4 * sum(map(len, texts)) + 500


class CallMemory:
    """Sampled answers by namespace and the id of their first call; the oldest go first.

    Bounded by `entries` and by `nbytes`. Safe to use from many threads.
    """

    def __init__(self, *, entries: int, nbytes: int) -> None:
        self._entries = entries
        self._limit = nbytes
        self._lock = threading.Lock()
        self._items: OrderedDict[tuple[str, str], tuple[Sampled, int]] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, namespace: str, sampled: Sampled) -> None:
        """Keep an answer that has calls."""
        key = (namespace, sampled.answer.tool_calls[0].id)
        size = sampled.nbytes
        with self._lock:
            old = self._items.pop(key, None)
            if old is not None:
                self.nbytes -= old[1]
            if size > self._limit:
                return
            self._items[key] = (sampled, size)
            self.nbytes += size
            while len(self._items) > self._entries or self.nbytes > self._limit:
                _, (_, freed) = self._items.popitem(last=False)
                self.nbytes -= freed

    def find(self, namespace: str, message: Message) -> Sampled | None:
        """The answer that `message` gives back unchanged, if it is one."""
        if not message.calls or message.calls[0].given_id is None:
            return None
        key = (namespace, message.calls[0].given_id)
        with self._lock:
            found = self._items.get(key)
            if found is None:
                return None
            self._items.move_to_end(key)
        return found[0] if _same(found[0].answer, message) else None


def _same(answer: Answer, message: Message) -> bool:
    """Whether a message says what the answer said, however its arguments are spelled.

    A thought that was not sent back counts as unchanged; whether it is seen is for the template.
    """
    if len(answer.tool_calls) != len(message.calls):
        return False
    for ours, theirs in zip(answer.tool_calls, message.calls, strict=True):
        if ours.id != theirs.given_id or ours.name != theirs.name:
            return False
        try:
            arguments = json.loads(ours.arguments)
        except (ValueError, RecursionError):
            return False
        if not same_json(arguments, theirs.arguments):
            return False
    thought, text = message.reasoning, message.text
    if thought is None and answer.reasoning:
        thought, text = split_thought(text)
    if thought is not None and thought.strip() != answer.reasoning.strip():
        return False
    return text == answer.text


def split_thought(text: str) -> tuple[str | None, str]:
    """A thought at the beginning of a text that has it between tags, and what follows it."""
    rest = text.lstrip()
    if not rest.startswith(THINK) or UNTHINK not in rest:
        return None, text
    thought, _, said = rest[len(THINK) :].partition(UNTHINK)
    return thought.strip("\n"), said.lstrip("\n")


def same_json(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same. `1` and `1.0` are (some languages cannot tell them
    apart), `1` and `true` are not; the order of keys does not count."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return _all_same(left, right)
    return bool(left == right)


def _all_same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(map(same_json, left, right))
