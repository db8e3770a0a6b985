"""The engine in this very process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from agentkv.client import engines
from agentkv.client.base import (
    CallRequest,
    ChatDelta,
    ChatReply,
    ChatRequest,
    ReplyChoice,
)
from agentkv.client.errors import EngineUnavailable, from_engine
from agentkv.client.limits import atimed, timed
from agentkv.engine.config import EngineConfig
from agentkv.engine.types import RenderedPrompt, RequestOutput, StreamEvent
from agentkv.report.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine


class InProcessClient:
    """Calls an engine that the caller owns, or the process's shared one of a configuration.

    A shared engine is loaded by the first call, and let go by `close()`.
    """

    def __init__(self, engine: Engine | EngineConfig | None = None) -> None:
        config = EngineConfig() if engine is None else engine
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._config = config if isinstance(config, EngineConfig) else None
        self._engine: Engine | None = None if isinstance(config, EngineConfig) else config

    @property
    def loaded(self) -> bool:
        """Whether a call could start at once."""
        return self._engine is not None and self._pid == os.getpid()

    @property
    def engine(self) -> Engine:
        """The engine; loads it when need be."""
        if self.loaded:
            assert self._engine is not None
            return self._engine
        if self._config is None:
            raise EngineUnavailable(
                "This engine was made before the process forked, and its worker thread is in the "
                "parent. Make one in the child, or give a configuration instead of an engine."
            )
        if self._pid != os.getpid():
            # A forked child: the lock may be held by a thread that is not here.
            self._lock, self._pid, self._engine = threading.Lock(), os.getpid(), None
        with self._lock:
            if self._engine is None:
                try:
                    self._engine = engines.acquire(self._config)
                except Exception as error:
                    _reraise(error)
            assert self._engine is not None
            return self._engine

    # -- calls -----------------------------------------------------------------------------------

    def send(self, request: CallRequest) -> ChatReply:
        engine = self.engine
        try:
            prompt = self._prompt(engine, request)
            output = engine.generate(
                prompt, request.params, timeout=request.timeouts.total, **_extras(request)
            )
        except Exception as error:
            _reraise(error)
        return _reply(engine, output)

    def stream(self, request: CallRequest) -> Iterator[ChatDelta]:
        engine = self.engine
        try:
            prompt = self._prompt(engine, request)
            events = engine.stream(prompt, request.params, **_extras(request))
            # Leaving the block aborts the call, also when this generator is closed early.
            with events:
                for event in timed(events, request.timeouts):
                    yield from _deltas(engine, event)
        except Exception as error:
            _reraise(error)

    async def asend(self, request: CallRequest) -> ChatReply:
        engine = await self._ready()
        try:
            prompt = self._prompt(engine, request)
            async with asyncio.timeout(request.timeouts.total):
                output = await engine.agenerate(prompt, request.params, **_extras(request))
        except Exception as error:
            _reraise(error)
        return _reply(engine, output)

    async def astream(self, request: CallRequest) -> AsyncIterator[ChatDelta]:
        engine = await self._ready()
        try:
            prompt = self._prompt(engine, request)
            async with engine.astream(prompt, request.params, **_extras(request)) as events:
                async for event in atimed(events, request.timeouts):
                    for delta in _deltas(engine, event):
                        yield delta
        except Exception as error:
            _reraise(error)

    async def _ready(self) -> Engine:
        """The engine, loaded off the event loop."""
        return self.engine if self.loaded else await asyncio.to_thread(lambda: self.engine)

    @staticmethod
    def _prompt(engine: Engine, request: CallRequest) -> str | RenderedPrompt:
        if not isinstance(request, ChatRequest):
            return request.prompt
        return engine.render(
            request.messages,
            request.tools or None,
            salt=request.salt,
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            template_kwargs=request.template_kwargs,
        )

    # -- looking ---------------------------------------------------------------------------------

    def count(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        try:
            return len(self.engine.render(messages, tools or None).token_ids)
        except Exception as error:
            _reraise(error)

    def encode(self, text: str) -> list[int]:
        return [int(i) for i in self.engine.tokenizer.encode_text(text)]

    def context_window(self) -> int | None:
        return self.engine.max_model_len

    def close(self) -> None:
        with self._lock:
            engine, config = self._engine, self._config
            if config is None or engine is None:
                return
            self._engine = None
        if self._pid == os.getpid():
            engines.release(config, engine)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)


def _extras(request: CallRequest) -> dict[str, Any]:
    return {
        "session": request.session,
        "salt": request.salt,
        "request_id": request.request_id,
    }


def _reply(engine: Engine, output: RequestOutput) -> ChatReply:
    return ChatReply(
        id=output.request_id,
        model=output.model,
        choices=tuple(
            ReplyChoice(
                index=c.index,
                text=c.text,
                finish_reason=c.finish_reason,
                logprobs=_logprobs(engine, c.logprobs) if c.logprobs is not None else None,
            )
            for c in output.choices
        ),
        report=CacheReport.from_output(output),
    )


def _deltas(engine: Engine, event: StreamEvent) -> Iterator[ChatDelta]:
    if event.output is not None:
        yield ChatDelta(reply=_reply(engine, event.output))
    elif event.index >= 0 and (event.text or event.finish_reason):
        yield ChatDelta(index=event.index, text=event.text, finish_reason=event.finish_reason)


def _logprobs(engine: Engine, values: Sequence[Any]) -> dict[str, Any]:
    """Log-probabilities in OpenAI's shape."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        raw = engine.tokenizer.token_bytes(token)
        text = raw.decode("utf-8", "replace")
        return {"token": text, "logprob": logprob, "bytes": list(raw)}

    return {
        "content": [
            {
                **entry(v.token_id, v.logprob),
                "top_logprobs": [entry(token, logprob) for token, logprob in v.top],
            }
            for v in values
        ]
    }


def _reraise(error: BaseException) -> NoReturn:
    """Raise `error` as one of `agentkv.client.errors`, where it is one of the engine's."""
    mapped = from_engine(error)
    if mapped is error:
        raise error
    raise mapped from error
