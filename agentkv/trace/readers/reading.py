"""What one reading remembers between lines; every memory here is bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from agentkv.trace.call import Part
from agentkv.trace.readers.problems import Problems
from agentkv.trace.readers.replies import Reply

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """The most recently used `limit` values; older ones are forgotten."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[Hashable, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def put(self, key: Hashable, value: Value) -> None:
        self._held[key] = value
        self._held.move_to_end(key)
        if len(self._held) > self._limit:
            self._held.popitem(last=False)

    def get(self, key: Hashable) -> Value | None:
        value = self._held.get(key)
        if value is not None:
            self._held.move_to_end(key)
        return value

    def pop(self, key: Hashable) -> Value | None:
        return self._held.pop(key, None)


@dataclass
class Reading:
    """The state of one `read`.

    `histories`: messages behind a response's or a conversation's id, which later requests continue
    without sending them again. `replies`: of a batch, by its file's id, read before the requests.
    `answers`: tokens of recorded replies, by digest. `turns`: digests of (question, answer) that an earlier line already had.
    """

    problems: Problems
    histories: Recent[tuple[Part, ...]] = field(default_factory=lambda: Recent(1024))
    replies: Recent[Reply] = field(default_factory=lambda: Recent(200_000))
    answers: Recent[int] = field(default_factory=lambda: Recent(200_000))
    turns: Recent[bool] = field(default_factory=lambda: Recent(200_000))
