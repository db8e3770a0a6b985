"""`CacheHintHandler`: tells the engine what an agent's runs say about the future of its cache.

    agent.invoke(..., config={"callbacks": [CacheHintHandler(model)]})

    a tool starts                  its session pauses: the prefix leaves late until the next call
    a graph with a thread starts   its session resumes: lower tiers bring the prefix back
    the outermost run ends         with `release=True`: what only this session used leaves first

The engine loses nothing without these, and a hint never fails or delays a run: they are sent on a
thread of their own, at most `waiting` at a time, and dropped where that is not enough.
"""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from agentkv.langchain import thread

if TYPE_CHECKING:
    from agentkv.langchain.settings import Settings

log = logging.getLogger("agentkv.langchain")

Action = Literal["pause", "release", "prefetch"]
_Hint = tuple[str, Action]

MOST_RUNS = 10_000
"""Outermost runs that are open at the same time; older ones are forgotten (their end never came)."""


class CacheHintHandler(BaseCallbackHandler):
    """Sends hints for the runs below it to the engine of `model` (a `ChatAgentKV` or `AgentKV`).

    `tool_seconds`: how long a tool is expected to take at most. `release`: a run that ends will not
    be continued (no checkpointer, or a thread for each question). Sessions are LangGraph threads, or
    the model's own `session`. Other servers than agentkv's take no hints; nothing is sent then.
    """

    run_inline = True
    """Queueing takes microseconds: in async runs it needs no thread, and keeps the order."""

    def __init__(
        self,
        model: Settings,
        *,
        tool_seconds: float = 120.0,
        release: bool = False,
        waiting: int = 256,
    ) -> None:
        super().__init__()
        if not 0 < tool_seconds <= 86_400:
            raise ValueError(
                f"tool_seconds must be above 0 and at most 86400, got {tool_seconds!r}."
            )
        self.sent = 0
        """Hints that the engine took."""
        self.dropped = 0
        """Hints that found the queue full, or no engine."""
        self._model = model
        self._seconds = tool_seconds
        self._release = release
        self._queue: queue.Queue[_Hint | None] = queue.Queue(maxsize=waiting)
        self._lock = threading.Lock()
        self._roots: OrderedDict[UUID, str] = OrderedDict()
        self._sender: threading.Thread | None = None

    # -- what LangChain calls --------------------------------------------------------------------

    def on_tool_start(self, *_: Any, metadata: Mapping[str, Any] | None = None, **__: Any) -> None:
        self._hint(self._session(metadata), "pause")

    def on_chain_start(
        self,
        *_: Any,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **__: Any,
    ) -> None:
        if parent_run_id is not None:
            return
        session = self._session(metadata)
        self._hint(session, "prefetch")
        if self._release and session is not None:
            with self._lock:
                self._roots[run_id] = session
                while len(self._roots) > MOST_RUNS:
                    self._roots.popitem(last=False)

    def on_chain_end(self, *_: Any, run_id: UUID, **__: Any) -> None:
        self._over(run_id)

    def on_chain_error(self, *_: Any, run_id: UUID, **__: Any) -> None:
        self._over(run_id)

    # -- sending ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def flush(self) -> None:
        """Wait until every hint so far was sent."""
        if self._sender is not None:
            self._queue.join()

    def close(self) -> None:
        """Send what waits, and stop. Later hints start anew; closing twice does nothing."""
        with self._lock:
            sender, self._sender = self._sender, None
        if sender is not None:
            self._queue.put(None)
            sender.join()

    def _over(self, run_id: UUID) -> None:
        with self._lock:
            session = self._roots.pop(run_id, None)
        self._hint(session, "release")

    def _session(self, metadata: Mapping[str, Any] | None) -> str | None:
        """As the model names the session of a call in the same run."""
        return self._model.session or thread.of_metadata(metadata) or thread.current()

    def _hint(self, session: str | None, action: Action) -> None:
        if session is None:
            return
        with self._lock:
            if self._sender is None:
                self._sender = threading.Thread(
                    target=_send, args=(weakref.ref(self), self._queue), daemon=True,
                    name="agentkv-hints",
                )  # fmt: skip
                self._sender.start()
        try:
            self._queue.put_nowait((session, action))
        except queue.Full:
            self.dropped += 1

    def _tell(self, session: str, action: Action) -> None:
        try:
            client = self._model._client()
            taken = client.hint(session, action, ttl=self._seconds, salt=self._model.cache_salt)
        except Exception as error:
            # Whatever is wrong will be said by the next call, which matters more.
            log.debug("a hint was not taken: %s", error)
            taken = None
        if taken is None:
            self.dropped += 1
        else:
            self.sent += 1


def _send(handler: weakref.ref[CacheHintHandler], waiting: queue.Queue[_Hint | None]) -> None:
    """The sender's loop. Ends with its handler."""
    while True:
        try:
            hint = waiting.get(timeout=5.0)
        except queue.Empty:
            if handler() is None:
                return
            continue
        there = handler()
        try:
            if hint is None or there is None:
                return
            there._tell(*hint)
        finally:
            waiting.task_done()
            del there
