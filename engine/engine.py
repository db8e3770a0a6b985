"""Engine: one model, one KV pool, one worker thread that runs `schedule -> run -> commit`.

Every public method may be called from any thread. The worker alone touches the scheduler, the tree
and the tensors; callers hand it commands and read events from queues of their own.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import queue
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from agentkv.engine.call import Call
from agentkv.engine.config import EngineConfig
from agentkv.engine.core import Core
from agentkv.engine.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    PoolTooSmall,
    QueueFull,
)
from agentkv.engine.keep import Pinned, seconds_of
from agentkv.engine.kv.pins import PAUSE_SECONDS, PIN_SECONDS
from agentkv.engine.kv.pool import dtype_name
from agentkv.engine.kv.tree import Namespace
from agentkv.engine.kv.view import Allowed, NodeView, TreeView, find, view
from agentkv.engine.parts import Parts
from agentkv.engine.run.backends import (
    attention_mark,
)
from agentkv.engine.run.grammar import CompiledGrammar, GrammarCompiler
from agentkv.engine.run.parallel_facts import RankFacts
from agentkv.engine.run.parallel_runner import ParallelRunner
from agentkv.engine.stream import AsyncStream, Stream
from agentkv.engine.types import (
    Grammar,
    IntArray,
    RenderedPrompt,
    RequestOutput,
    SamplingParams,
    as_ids,
)
from agentkv.engine.worker import Worker

log = logging.getLogger("agentkv.engine")

SaltFilter = Callable[[str | None], bool]
Prompt = str | Sequence[int] | IntArray | RenderedPrompt


class Engine:
    """A language model with a prefix cache.

    `Engine(model="smollm2-135m", page_size=16)` or `Engine(EngineConfig(...))`. Use it as a context
    manager, or call `close`. Loading the model happens here and takes seconds.

    Raises `ModelNotFound`, `UnsupportedModel` or `PullFailed` when the model cannot be had.
    """

    def __init__(self, config: EngineConfig | None = None, **overrides: Any) -> None:
        wanted = replace(config or EngineConfig(), **overrides)
        self._worker = Worker(lambda worker: self._load(wanted, worker))
        self._worker.ready()
        parts = self._core.parts
        shape = parts.model.config
        self.config = parts.config
        self.model_name = parts.name
        self.attention_name = parts.attention
        self.device_name = parts.device_name
        self.dtype_name = dtype_name(parts.dtype)
        self.kv_dtype_name = parts.kv_dtype_name
        self.host_kv_dtype_name = dtype_name(parts.host_dtype)
        self.max_model_len = parts.max_model_len
        self.vocab_size = shape.vocab_size
        self.fingerprint = parts.model.fingerprint
        self.page_size = parts.config.page_size
        self.pool_tokens = parts.pool_tokens
        self.kv_bytes = parts.kv_bytes
        self.bit_exact = self._core.bit_exact
        self.tokenizer = parts.tokenizer
        self.renderer = parts.renderer
        self.created = int(time.time())
        self._eos = parts.eos
        self._grammars = GrammarCompiler(self.tokenizer, vocab_size=shape.vocab_size, eos=self._eos)
        _close_at_exit(self)

    def _load(self, config: EngineConfig, worker: Worker) -> Core:
        """On the worker's thread."""
        parts = Parts.load(config, worker.fail)
        try:
            self._core = Core(parts, worker.post)
        except BaseException:
            if parts.parallel is not None:
                parts.parallel.close()
            raise
        return self._core

    # -- calls

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        session: str | None = None,
        salt: str | None = None,
        pin: float | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> RequestOutput:
        """Run one call and wait for it. `timeout` in seconds; then the call is aborted and
        `TimeoutError` raised.

        `prompt`: text (control tokens in it are parsed), token ids, or what `render` returned.
        `session`: calls of one session are compared with each other to say why a miss happened.
        `salt`: calls with different salts share nothing. `params.max_tokens=0` only prefills.
        `pin`: keep the prompt's lasting segments (tools, instructions, documents, as far as they
        stand at its front) for so many seconds; see `Engine.pin`.
        Raises `InvalidRequest`, `ContextLengthExceeded`, `PoolTooSmall`, `QueueFull`, `EngineClosed`.
        """
        stream = self.stream(
            prompt, params, session=session, salt=salt, pin=pin, request_id=request_id
        )
        with stream:
            return stream.result(timeout)

    async def agenerate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        session: str | None = None,
        salt: str | None = None,
        pin: float | None = None,
        request_id: str | None = None,
    ) -> RequestOutput:
        """`generate` for asyncio. Cancelling the task aborts the call."""
        stream = self.astream(
            prompt, params, session=session, salt=salt, pin=pin, request_id=request_id
        )
        async with stream:
            return await stream.result()

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        session: str | None = None,
        salt: str | None = None,
        pin: float | None = None,
        request_id: str | None = None,
    ) -> Stream:
        """Iterate over `StreamEvent`s. Closing the iterator aborts the call. Errors as `generate`,
        raised here and not at the first event."""
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        call = self._call(prompt, params, session, salt, pin, request_id, events.put)
        self._submit(call)
        return Stream(call.id, events, self.abort)

    def astream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        session: str | None = None,
        salt: str | None = None,
        pin: float | None = None,
        request_id: str | None = None,
    ) -> AsyncStream:
        """`stream` for asyncio; must be called in a running event loop."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Any] = asyncio.Queue()

        def emit(event: Any) -> None:
            try:
                loop.call_soon_threadsafe(events.put_nowait, event)
            except RuntimeError:
                # The loop is closed: nobody listens any more, though the stream may still be held.
                log.debug("an event of %s came after its loop had closed", call.id)
                self.abort(call.id)

        call = self._call(prompt, params, session, salt, pin, request_id, emit)
        self._submit(call)
        return AsyncStream(call.id, events, self.abort)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        salt: str | None = None,
        **options: Any,
    ) -> RenderedPrompt:
        """Chat messages (OpenAI's shape) as a prompt; see `Renderer.render`.

        `salt`: as in `generate`; outputs are replayed only within one.
        """
        return self.renderer.render(messages, tools, namespace=salt or "", **options)

    def compile(self, grammar: Grammar) -> None:
        """Do the slow part of a grammar now (5 s at most; cached for the calls that use it).

        Every call compiles what it needs by itself, on the caller's thread; asyncio callers run
        this in a thread first. Raises `InvalidRequest` when the grammar cannot be used.
        """
        self._grammar(grammar)

    def abort(self, request_id: str) -> bool:
        """Stop a call, whatever it is doing. False if there is none of that id.

        What it has computed stays in the cache. Its stream ends with finish reason `abort`.
        """
        with self._worker.lock:
            call = self._core.calls.get(request_id)
            if call is None or self._worker.broken:
                return False
            self._worker.post(lambda: self._core.abort(call))
        return True

    # -- what callers know of the future

    def pin(self, prompt: Prompt, *, ttl: float = PIN_SECONDS, salt: str | None = None) -> Pinned:
        """Let a prefix leave the cache last, for `ttl` seconds; computes it first if need be.

        Whole pages of it are kept. All pins together keep `pin_share` of the pool at most: where a
        new one goes over that, the oldest end. Pinning the same prefix again prolongs it. Raises
        `InvalidRequest` when it is larger than that, or shorter than a page; otherwise as `generate`.
        """
        ttl = seconds_of(ttl)
        output = self.generate(prompt, SamplingParams(max_tokens=0), salt=salt)
        ids, namespace = output.prompt_token_ids, self._namespace(salt)
        return self._worker.ask(
            lambda: self._core.keeper.pin(self._core.scheduler, namespace, ids, ttl)
        )

    def unpin(self, pin_id: str, *, of: SaltFilter | None = None) -> bool:
        """End a pin. False if there is none of that id (among those whose salt `of` accepts)."""
        allowed = _allowed(of)
        return self._worker.ask(
            lambda: self._core.keeper.unpin(self._core.scheduler, pin_id, allowed)
        )

    def pins(self, *, of: SaltFilter | None = None) -> list[Pinned]:
        """The pins of all salts, or of those that `of` accepts, oldest first."""
        allowed = _allowed(of)
        return self._worker.ask(lambda: self._core.keeper.pins(self._core.scheduler, allowed))

    def pause(self, session: str, *, ttl: float = PAUSE_SECONDS, salt: str | None = None) -> int:
        """A session runs a tool, or waits for a person: let its prefix leave late, until its next
        call or for `ttl` seconds. A hint: returns the tokens that are kept, 0 if none."""
        ttl, namespace = seconds_of(ttl), self._namespace(salt)
        return self._worker.ask(
            lambda: self._core.keeper.pause(self._core.scheduler, namespace, session, ttl)
        )

    def release(self, session: str, *, salt: str | None = None) -> int:
        """A session is over: what only it used leaves first. Returns its tokens. A hint."""
        namespace = self._namespace(salt)
        return self._worker.ask(
            lambda: self._core.keeper.release(self._core.scheduler, namespace, session)
        )

    def prefetch(self, session: str, *, salt: str | None = None) -> int:
        """A session is about to resume: bring its prefix back from lower tiers. Returns the tokens
        that they have of it. A hint: does not wait."""
        namespace = self._namespace(salt)
        return self._worker.ask(
            lambda: self._core.keeper.prefetch(self._core.scheduler, namespace, session)
        )

    def tree(
        self, *, of: SaltFilter | None = None, most: int = 2000, depth: int | None = None
    ) -> TreeView:
        """The radix tree as it is now: all of it, or what has a salt that `of` accepts; at most
        `most` nodes."""
        allowed = _allowed(of)
        return self._worker.ask(
            lambda: view(self._core.scheduler.cache.tree, allowed, most=most, depth=depth)
        )

    def node(
        self, node_id: str, *, of: SaltFilter | None = None
    ) -> tuple[NodeView, IntArray, int] | None:
        """One node of the tree: how it is, the token ids of its edge, and its number of children.
        None when no node, or more than one, has an id that begins like this."""
        allowed = _allowed(of)
        return self._worker.ask(lambda: find(self._core.scheduler.cache.tree, node_id, allowed))

    def save(self) -> int:
        """Start to bring to disk what is not there yet. Returns the prefixes that will be written;
        0 without a disk tier."""

        def work() -> int:
            tiers = self._core.scheduler.cache.tiers
            if tiers is None:
                return 0
            found = tiers.store_all()
            tiers.work()
            return found

        return self._worker.ask(work)

    def flush(self) -> int:
        """Empty the cache, pins included. Requests in flight keep what they use. Returns the tokens freed now."""

        def work() -> int:
            return self._core.scheduler.cache.flush()

        return self._worker.ask(work)

    def stats(self) -> dict[str, Any]:
        """Counters over the engine's life, and the pool as it is now (tokens)."""

        def work() -> dict[str, Any]:
            cache, scheduler = self._core.scheduler.cache, self._core.scheduler
            cache.pins.expire()
            free = cache.pages.free_pages * self.page_size
            evictable = cache.tree.evictable_tokens
            return {
                "num_requests_running": len(scheduler.running),
                "num_requests_waiting": len(scheduler.waiting),
                "pool_tokens": self.pool_tokens,
                "kv_dtype": self.kv_dtype_name,
                "host_kv_dtype": self.host_kv_dtype_name,
                "kv_bytes": self.kv_bytes,
                "free_tokens": free,
                "evictable_tokens": evictable,
                "locked_tokens": cache.tree.locked_tokens,
                "private_tokens": cache.private_pages * self.page_size,
                "token_usage": 1.0 - (free + evictable) / self.pool_tokens,
                "evicted_tokens_total": cache.tree.evicted_tokens_total,
                "retractions_total": scheduler.retractions,
                "pinned_tokens": cache.tree.kept_tokens["pins"],
                "paused_tokens": cache.tree.kept_tokens["pauses"],
                "decayed_pins_total": cache.pins.decayed["pins"],
                "refused_pins_total": self._core.keeper.refused_pins,
                "hints_total": dict(self._core.keeper.hints),
                "tiers": {} if self._core.lower is None else self._core.lower.stats(),
                **self._core.counters.snapshot(),
            }

        return self._worker.ask(work)

    def check(self, *, deep: bool = True) -> None:
        """Verify page conservation now. Raises `TreeError` with every term of the account; and
        `RankFailed` when the processes of a tensor-parallel engine have not run the same batches."""

        def work() -> None:
            self._core.scheduler.check(deep=deep)
            if isinstance(self._core.runner, ParallelRunner):
                self._core.runner.check()

        self._worker.ask(work)

    def ranks(self) -> list[RankFacts]:
        """What each process of a tensor-parallel engine has computed, as it says it; empty for any
        other engine."""

        def work() -> list[RankFacts]:
            return (
                self._core.runner.facts() if isinstance(self._core.runner, ParallelRunner) else []
            )

        return self._worker.ask(work)

    @property
    def alive(self) -> bool:
        """False once the engine was closed or its worker failed. Costs nothing."""
        return self._worker.alive

    def close(self) -> None:
        """Abort what runs, stop the worker, free the pool. Closing twice does nothing."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    # -- on the caller's thread

    def _call(
        self,
        prompt: Prompt,
        params: SamplingParams | None,
        session: str | None,
        salt: str | None,
        pin: float | None,
        request_id: str | None,
        emit: Callable[[Any], None],
    ) -> Call:
        params = params or SamplingParams()
        if pin is not None:
            pin = seconds_of(pin, "pin")
        if isinstance(prompt, RenderedPrompt):
            rendered = prompt
        elif isinstance(prompt, str):
            rendered = RenderedPrompt(token_ids=self.tokenizer.encode_raw(prompt))
        else:
            rendered = RenderedPrompt(token_ids=as_ids(prompt))
        ids = rendered.token_ids
        if len(ids) == 0:
            raise InvalidRequest(
                "The prompt is empty: it needs at least one token.", param="prompt"
            )
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            raise InvalidRequest(
                f"A token id is outside the vocabulary of {self.vocab_size}.", param="prompt"
            )
        if any(not 0 <= token < self.vocab_size for token in params.logit_bias):
            raise InvalidRequest(
                f"logit_bias names a token outside the vocabulary of {self.vocab_size}.",
                param="logit_bias",
            )
        max_new = self._max_new(len(ids), params.max_tokens)
        grammar = self._grammar(params.grammar) if params.grammar and max_new else None
        return Call(
            request_id or f"req-{uuid.uuid4().hex}",
            rendered,
            params,
            max_new=max_new,
            namespace=self._namespace(salt),
            pin=pin,
            session=session,
            eos=self._eos,
            tokenizer=self.tokenizer,
            emit=emit,
            grammar=grammar,
        )

    def _namespace(self, salt: str | None) -> Namespace:
        # What computed K/V is part of it, too: a pool may be narrower than the weights.
        mark = attention_mark(self.attention_name, deterministic=self.config.deterministic)
        return (
            ("model", self.fingerprint),
            ("dtype", self.dtype_name),
            ("kv", self.kv_dtype_name),
            ("attention", mark),
            *((("ranks", self.config.tensor_parallel),) if self.config.tensor_parallel > 1 else ()),
            ("salt", salt),
        )

    def _grammar(self, grammar: Grammar) -> CompiledGrammar:
        if grammar.opener is not None and grammar.opener[0] >= self.vocab_size:
            raise InvalidRequest(
                f"grammar.opener names a token outside the vocabulary of {self.vocab_size}.",
                param="grammar",
            )
        return self._grammars.compile(grammar)

    def _max_new(self, prompt: int, wanted: int | None) -> int:
        window = self.max_model_len
        if prompt + (1 if wanted is None else wanted) > window or prompt > window:
            raise ContextLengthExceeded(
                limit=window, prompt_tokens=prompt, max_tokens=1 if wanted is None else wanted
            )
        if wanted is None:
            wanted = max(1, min(window - prompt, self.pool_tokens - prompt + 1))
        needed = -(-(prompt + max(0, wanted - 1)) // self.page_size)
        total = self.pool_tokens // self.page_size
        if needed > total:
            raise PoolTooSmall(needed=needed, total=total, page_size=self.page_size)
        return wanted

    def _submit(self, call: Call) -> None:
        with self._worker.lock:
            self._worker.must_run()
            waiting = sum(c.facts is None for c in list(self._core.calls.values()))
            if waiting >= self.config.max_queued:
                raise QueueFull(waiting=waiting)
            if call.id in self._core.calls:
                raise InvalidRequest(f"The request id {call.id!r} is in use.", param="request_id")
            self._core.calls[call.id] = call
            self._worker.post(lambda: self._core.start(call))


def _allowed(of: SaltFilter | None) -> Allowed:
    """Namespaces whose salt is accepted."""
    if of is None:
        return lambda namespace: True
    return lambda namespace: any(key == "salt" and of(salt) for key, salt in _tagged(namespace))


def _tagged(namespace: Namespace) -> list[tuple[str, Any]]:
    return [part for part in namespace if isinstance(part, tuple) and len(part) == 2]


def _close_at_exit(engine: Engine) -> None:
    """A worker inside a tensor operation must not outlive the interpreter."""
    alive = weakref.ref(engine)

    def close() -> None:
        there = alive()
        if there is not None:
            there.close()

    atexit.register(close)
