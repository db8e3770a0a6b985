"""The lines of a streamed HTTP reply as deltas, within the limits of the call."""

from __future__ import annotations

import time
from typing import Any

from agentkv.client.base import ChatDelta, Timeouts
from agentkv.client.errors import CallTimeout, EngineFailed, EngineUnavailable, from_status
from agentkv.client.replies import Assembly, Reporter, own_report, prefilled
from agentkv.client.retry import Attempts
from agentkv.client.sse import DONE, Events, decode


class Reader:
    """Turns the lines of one stream into deltas, and keeps its limits.

    `prefill`: nothing was asked for but the prompt, so what another server says is left out.

    The server sends a comment every few seconds while nothing happens, so silence on the wire
    means that it is gone; whether a *token* is late is looked at whenever a line comes.
    """

    def __init__(self, timeouts: Timeouts, attempts: Attempts) -> None:
        self._timeouts = timeouts
        self._attempts = attempts
        self._events = Events()
        self._assembly = Assembly()
        self.report: Reporter = own_report
        self.prefill = False
        self._last = time.monotonic()
        self.started = False
        self.done = False

    @property
    def phase(self) -> str:
        left = self._attempts.left
        if left is not None and left <= 0:
            return "total"
        return "chunk" if self.started else "first_token"

    @property
    def silence(self) -> float | None:
        """The longest silence on the wire, in seconds."""
        t = self._timeouts
        waits = [w for w in (t.first_token, t.chunk) if w is not None]
        longest = max(waits) if len(waits) == 2 else None
        left = self._attempts.left
        return longest if left is None else left if longest is None else min(longest, left)

    def feed(self, line: str) -> list[ChatDelta]:
        """Deltas of one line. Raises when the stream reports an error, or is too late."""
        data = self._events.feed(line)
        if data is None:
            self._check()
            return []
        if data == DONE:
            self.done = True
            return []
        try:
            chunk = decode(data)
        except ValueError as error:
            raise EngineFailed(f"the stream held something that is no event: {error}") from error
        if chunk.get("error"):
            raise from_status(_status(chunk["error"]), chunk)
        deltas = self._assembly.feed(chunk)
        if deltas:
            self._last = time.monotonic()
            self.started = True
        return [] if self.prefill else deltas

    def _check(self) -> None:
        phase = self.phase
        limit = getattr(self._timeouts, phase)
        waited = time.monotonic() - self._last
        if phase == "total" or (limit is not None and waited > limit):
            raise CallTimeout(phase, limit)

    def end(self) -> ChatDelta:
        """The delta that closes the call. Raises when the stream broke off."""
        if not self.done and not self._assembly.complete:
            raise EngineUnavailable("The stream broke off before the answer was complete.")
        reply = self._assembly.reply(self.report)
        return ChatDelta(reply=prefilled(reply) if self.prefill else reply)


def _status(error: Any) -> int:
    """A status for an error that came inside a stream, whose own status line said 200."""
    if isinstance(error, dict):
        for said in (error.get("status_code"), error.get("code")):
            if isinstance(said, int) and 400 <= said < 600:
                return said
    kind = error.get("type") if isinstance(error, dict) else None
    return {
        "invalid_request_error": 400,
        "rate_limit_error": 429,
        "service_unavailable_error": 503,
    }.get(str(kind), 500)
