"""The HTTP clients behind a client, and what their failures mean."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING, NoReturn

from agentkv.client.base import Timeouts
from agentkv.client.errors import AgentKVError, CallTimeout, EngineUnavailable, from_status
from agentkv.client.retry import parse_retry_after

if TYPE_CHECKING:
    import httpx

SHORTEST = 0.001
"""Seconds that a read may take at least, also where a call has no time left."""


class Connections:
    """httpx clients, made at their first use; those that were given are the giver's to close."""

    def __init__(
        self, given: httpx.Client | None = None, given_async: httpx.AsyncClient | None = None
    ) -> None:
        self._given = given
        self._given_async = given_async
        self._lock = threading.Lock()
        self._own: httpx.Client | None = None
        # A connection pool belongs to the event loop that made it.
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]
        self._by_loop = weakref.WeakKeyDictionary()

    def sync(self) -> httpx.Client:
        """The client for plain calls."""
        if self._given is not None:
            return self._given
        with self._lock:
            if self._own is None:
                import httpx

                self._own = httpx.Client()
            return self._own

    def for_loop(self) -> httpx.AsyncClient:
        """The client of the running event loop."""
        if self._given_async is not None:
            return self._given_async
        import httpx

        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._by_loop.get(loop)
            if client is None:
                client = self._by_loop[loop] = httpx.AsyncClient()
            return client

    def close(self) -> None:
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            own.close()

    async def aclose(self) -> None:
        self.close()
        mine = self._by_loop.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine.aclose()


def failure(root: str, response: httpx.Response) -> AgentKVError:
    """The error for a reply whose status is not 200."""
    try:
        body = response.json()
    except ValueError:
        body = None
    wait = parse_retry_after(response.headers.get("retry-after"))
    return from_status(response.status_code, body, retry_after=wait, url=root)


def give_up(found: AgentKVError, error: BaseException) -> NoReturn:
    """Raise `found`, caused by `error` (which it may be: then it keeps the cause that it has)."""
    if found is error:
        raise found
    raise found from error


def mapped(
    error: httpx.HTTPError | AgentKVError, root: str, phase: str, timeouts: Timeouts
) -> AgentKVError:
    """The error of a call that met `error` in `phase`."""
    import httpx

    if isinstance(error, AgentKVError):
        return error
    if isinstance(error, (httpx.ConnectTimeout, httpx.PoolTimeout)):
        return CallTimeout("connect", timeouts.connect)
    if isinstance(error, httpx.TimeoutException):
        return CallTimeout(phase, getattr(timeouts, phase))
    what = "cannot be reached" if isinstance(error, httpx.ConnectError) else "went away"
    detail = str(error) or type(error).__name__
    return EngineUnavailable(f"{root} {what}: {detail}. Is `agentkv serve` running there?")


def limits(timeouts: Timeouts, *, read: float | None) -> httpx.Timeout:
    """The limits of one request; `read` is the longest silence, in seconds."""
    import httpx

    if read is not None:
        # A socket whose limit is 0 does not wait at all, and reports that as a broken connection.
        read = max(read, SHORTEST)
    return httpx.Timeout(connect=timeouts.connect, read=read, write=read, pool=timeouts.connect)
