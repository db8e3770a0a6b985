"""What the routes share: the engine, the phase the server is in, and the calls in flight."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request

from agentkv.engine.errors import EngineClosed
from agentkv.engine.serve.config import ServeConfig
from agentkv.engine.serve.errors import context_length_exceeded, model_not_found, not_ready
from agentkv.engine.serve.metrics import Metrics
from agentkv.engine.serve.record import Recorder
from agentkv.engine.serve.verdicts import Verdicts

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine

Phase = Literal["loading", "ready", "draining", "failed"]


@dataclass(eq=False, slots=True)
class Ticket:
    """One HTTP request in flight, and the ids of its requests in the engine."""

    request_id: str
    engine_ids: tuple[str, ...]
    tenant: str | None = None
    """Whose key it came with, where there are several."""
    started: float = field(default_factory=time.perf_counter)


class Service:
    """`loading -> ready -> draining`; only `ready` takes new calls."""

    def __init__(self, engine: Engine | None, config: ServeConfig) -> None:
        self.config = config
        self.phase: Phase = "loading"
        self.metrics = Metrics()
        self.verdicts = Verdicts()
        self.recorder: Recorder | None = None
        """Set by whoever opens a recording, and closes it."""
        self._engine: Engine | None = None
        self._most_bytes = 0
        self._tickets: set[Ticket] = set()
        if engine is not None:
            self.attach(engine)

    def attach(self, engine: Engine) -> None:
        """The model is loaded: start taking calls (unless the server is going down already)."""
        tokenizer = engine.tokenizer
        longest = max(len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size))
        # A normaliser may shorten a text before it is cut into tokens, hence the slack.
        self._most_bytes = 4 * longest * engine.max_model_len
        self._engine = engine
        self.metrics.watch(engine.stats)
        if self.phase == "loading":
            self.phase = "ready"

    @property
    def engine(self) -> Engine:
        """The engine, for routes that only read. Raises 503 while there is none."""
        if self._engine is None:
            raise not_ready("failed" if self.phase == "failed" else "loading")
        return self._engine

    def note(self, error: BaseException) -> None:
        """A call ended with `error`: when it says that the engine is dead, so is this server."""
        if isinstance(error, EngineClosed) and self.phase == "ready" and not self.engine.alive:
            self.phase = "failed"

    @property
    def has_engine(self) -> bool:
        return self._engine is not None

    def accept(self, model: str | None = None) -> Engine:
        """The engine, for a call that generates. Raises 503 unless ready, 404 for another model."""
        engine = self.engine
        if self.phase != "ready":
            raise not_ready(self.phase)
        self.check_model(model)
        return engine

    def check_model(self, model: str | None) -> None:
        """A request may leave the model out; it may not name one that is not here."""
        known = self.engine.model_name
        if model is not None and model != known:
            raise model_not_found(model[:200], (known,))

    def check_size(self, texts: Any) -> None:
        """Refuse what cannot fit the window whatever its tokens are, before tokenising it.

        Tokenising tens of megabytes takes many seconds of CPU, for an answer that is clear.
        """
        size = _text_size(texts)
        if size > self._most_bytes:
            limit = self.engine.max_model_len
            raise context_length_exceeded(
                f"This model's maximum context length is {limit} tokens. However, your messages "
                f"hold {size} bytes of text, which is more than so many tokens can be.",
                limit,
                None,
            )

    @property
    def in_flight(self) -> int:
        """HTTP requests that are generating or wait for their turn."""
        return len(self._tickets)

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        """Calls in flight."""
        return tuple(self._tickets)

    def open(self, request_id: str, calls: int = 1, tenant: str | None = None) -> Ticket:
        """Register `calls` engine requests under `request_id`, for `tenant`.

        Two clients may send the same id at once; the engine's ids stay apart all the same.
        """
        live = any(ticket.request_id == request_id for ticket in self._tickets)
        base = f"{request_id}~{secrets.token_hex(4)}" if live else request_id
        ids = (base,) if calls == 1 else tuple(f"{base}-{i}" for i in range(calls))
        ticket = Ticket(request_id, ids, tenant)
        self._tickets.add(ticket)
        return ticket

    def close(self, ticket: Ticket) -> None:
        """The call is over, in whatever way. Closing twice is harmless."""
        self._tickets.discard(ticket)

    @contextmanager
    def during(self, request_id: str, calls: int = 1) -> Iterator[Ticket]:
        """`open` and `close` around a block."""
        ticket = self.open(request_id, calls)
        try:
            yield ticket
        finally:
            self.close(ticket)

    def seen_by(self, tenant: str | None) -> list[Ticket]:
        """The calls in flight of one tenant; None: all of them."""
        return [t for t in list(self._tickets) if tenant is None or t.tenant == tenant]

    def abort(self, request_id: str | None, tenant: str | None = None) -> int:
        """Abort the calls with `request_id` (None: all), of `tenant` (None: of all).

        Returns how many were told to stop.
        """
        told = 0
        for ticket in self.seen_by(tenant):
            if request_id is None or ticket.request_id == request_id:
                told += sum([self.engine.abort(engine_id) for engine_id in ticket.engine_ids])
        return told


def service_of(request: Request) -> Service:
    """The service behind the app that got `request`."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def _text_size(value: Any) -> int:
    """Bytes of all strings inside `value`, UTF-8."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8"))
    if isinstance(value, dict):
        return sum(_text_size(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_text_size(item) for item in value)
    return 0
