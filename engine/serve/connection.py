"""A connection that does not wait for ever for the rest of a request."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from agentkv.engine.serve.errors import invalid
from agentkv.engine.serve.wire import encode

REQUEST_SECONDS = 40.0
"""Longer than the application's own deadline for a body, which can still answer politely."""


class DeadlineProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, closed when a request takes too long to arrive.

    The application sees a request only once its headers are complete, and nothing of one that it
    has already refused, so half a header and an endless body have to be watched down here. The
    timer runs from the first byte (or from the connection's start) to the end of the body.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._arm()
        else:
            self._disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets an error of the shape that all others have."""
        body = encode(invalid(msg, code="invalid_http").body())
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Says nothing: some clients offer HTTP/2 with every request, and get HTTP/1.1 as they may.
        (uvicorn would advise to install a library for web sockets, twice a request.)"""

    def _arm(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._expire)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()
