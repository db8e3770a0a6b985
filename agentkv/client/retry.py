"""When to send a request again, and how long to wait before."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from agentkv.client.base import Timeouts
from agentkv.client.errors import retryable

FIRST_WAIT = 0.5
LONGEST_WAIT = 8.0
LONGEST_ASKED = 60.0
"""A server that asks for a longer pause than this gets its error passed on instead."""


@dataclass(slots=True)
class Attempts:
    """One call's tries: at most `retries` after the first, within the limit of the whole call."""

    retries: int
    timeouts: Timeouts
    tried: int = 0
    started: float = field(default_factory=time.monotonic)

    def wait_after(self, error: BaseException) -> float | None:
        """Seconds until the next try; None when `error` is final.

        A server's `Retry-After` is honoured; else the pause doubles from half a second, with a
        random quarter taken off so that clients who failed together do not return together.
        """
        self.tried += 1
        if self.tried > self.retries or not retryable(error):
            return None
        asked = getattr(error, "retry_after", None)
        if asked is not None and asked > LONGEST_ASKED:
            return None
        pause = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (self.tried - 1))
        wait = pause * (1 - random.random() / 4) if asked is None else float(asked)
        left = self.left
        return None if left is not None and wait >= left else wait

    @property
    def left(self) -> float | None:
        """Seconds that remain of the whole call's limit."""
        total = self.timeouts.total
        return None if total is None else max(0.0, self.started + total - time.monotonic())


def parse_retry_after(value: str | None) -> float | None:
    """Seconds of a `Retry-After` header; its date form is not used by model servers."""
    try:
        seconds = float(value) if value is not None else None
    except ValueError:
        return None
    return seconds if seconds is not None and seconds >= 0 else None
