"""The engine in this very process."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from agentkv.client import engines
from agentkv.client.base import (
    CallRequest,
    ChatDelta,
    ChatReply,
    ChatRequest,
    HintAction,
    ReplyChoice,
    TextRequest,
)
from agentkv.client.errors import EngineUnavailable, from_engine
from agentkv.client.limits import atimed, timed
from agentkv.engine.answers import Answers, Ended, steps
from agentkv.engine.config import EngineConfig
from agentkv.engine.types import Choice, RenderedPrompt, RequestOutput, StreamEvent
from agentkv.report.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine.chat import Chat
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
                    self._engine = engines.acquire(self._config, self)
                except Exception as error:
                    _reraise(error)
            assert self._engine is not None
            return self._engine

    # -- calls -----------------------------------------------------------------------------------

    def send(self, request: CallRequest) -> ChatReply:
        engine = self.engine
        try:
            call = _Call(engine, request)
            output = engine.generate(
                call.prompt, call.params, timeout=call.left, **_extras(request)
            )
            return call.reply(output)
        except Exception as error:
            _reraise(error)

    def stream(self, request: CallRequest) -> Iterator[ChatDelta]:
        engine = self.engine
        try:
            call = _Call(engine, request)
            events = engine.stream(call.prompt, call.params, **_extras(request))
            # Leaving the block aborts the call, also when this generator is closed early.
            with events:
                for event in timed(events, request.timeouts):
                    yield from call.deltas(event)
        except Exception as error:
            _reraise(error)

    async def asend(self, request: CallRequest) -> ChatReply:
        engine = await self._ready()
        try:
            async with asyncio.timeout(request.timeouts.total):
                # Rendering and compiling a grammar take a while, so not on the event loop.
                call = await asyncio.to_thread(_Call, engine, request)
                output = await engine.agenerate(call.prompt, call.params, **_extras(request))
            return call.reply(output)
        except Exception as error:
            _reraise(error)

    async def astream(self, request: CallRequest) -> AsyncIterator[ChatDelta]:
        engine = await self._ready()
        try:
            call = await asyncio.to_thread(_Call, engine, request)
            async with engine.astream(call.prompt, call.params, **_extras(request)) as events:
                async for event in atimed(events, request.timeouts):
                    for delta in call.deltas(event):
                        yield delta
        except Exception as error:
            _reraise(error)

    async def _ready(self) -> Engine:
        """The engine, loaded off the event loop."""
        return self.engine if self.loaded else await asyncio.to_thread(lambda: self.engine)

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

    def hint(
        self, session: str, action: HintAction, *, ttl: float, salt: str | None = None
    ) -> int | None:
        if not self.loaded:
            return None  # an engine that is not there knows no session
        try:
            if action == "pause":
                return self.engine.pause(session, ttl=ttl, salt=salt)
            if action == "release":
                return self.engine.release(session, salt=salt)
            return self.engine.prefetch(session, salt=salt)
        except Exception as error:
            _reraise(error)

    def context_window(self) -> int | None:
        return self.engine.max_model_len

    def close(self) -> None:
        with self._lock:
            engine, config = self._engine, self._config
            if config is None or engine is None:
                return
            self._engine = None
        if self._pid == os.getpid():
            engines.release(config, engine, self)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)


class _Call:
    """One call made ready: its prompt and grammar, and how its answers are read. Blocks a while."""

    def __init__(self, engine: Engine, request: CallRequest) -> None:
        self._engine = engine
        self._ends = _after(request.timeouts.total)
        chat = _chat(engine, request) if isinstance(request, ChatRequest) else None
        self.prompt: str | RenderedPrompt
        if chat is None:
            assert isinstance(request, TextRequest)
            self.prompt, self.params = request.prompt, request.params
        else:
            self.prompt, self.params = chat.prompt, chat.params
        self._answers = Answers(chat)

    @property
    def left(self) -> float | None:
        """Seconds that remain of the whole call's limit."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    def reply(self, output: RequestOutput) -> ChatReply:
        ended = self._answers.end(output)
        return ChatReply(
            id=output.request_id,
            model=output.model,
            choices=tuple(self._choice(*pair) for pair in zip(output.choices, ended, strict=True)),
            report=CacheReport.from_output(output),
        )

    def _choice(self, choice: Choice, ended: Ended) -> ReplyChoice:
        scored = choice.logprobs
        return ReplyChoice(
            index=choice.index,
            text=ended.answer.text,
            finish_reason=ended.finish_reason,
            logprobs=_logprobs(self._engine, scored) if scored is not None else None,
            tool_calls=ended.answer.tool_calls,
            reasoning=ended.answer.reasoning,
            opener_scores=choice.opener_scores,
            token_ids=choice.token_ids,
        )

    def deltas(self, event: StreamEvent) -> Iterator[ChatDelta]:
        """What an event of the engine adds, as it would come over HTTP."""
        if event.output is not None:
            yield ChatDelta(reply=self.reply(event.output))
            return
        piece = self._answers.feed(event)
        if piece is None:
            return
        new, index = piece.delta, event.index
        calls = tuple(steps(new.calls))
        if new.text or new.reasoning or calls or piece.finish_reason:
            yield ChatDelta(
                index=index,
                text=new.text,
                reasoning=new.reasoning,
                calls=calls,
                finish_reason=piece.finish_reason,
            )


def _chat(engine: Engine, request: ChatRequest) -> Chat:
    # Imported here: a process that only sends requests over HTTP needs none of it.
    from agentkv.engine.chat import prepare

    return prepare(
        engine,
        request.messages,
        request.tools or None,
        params=request.params,
        tool_choice=request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        response_format=request.response_format,
        auto_policy=request.auto_policy,
        salt=request.salt,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        template_kwargs=request.template_kwargs,
    )


def _after(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


def _extras(request: CallRequest) -> dict[str, Any]:
    return {
        "session": request.session,
        "salt": request.salt,
        "pin": request.pin if isinstance(request, ChatRequest) else None,
        "request_id": request.request_id,
    }


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
