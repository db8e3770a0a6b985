"""Engine: one model, one KV pool, one worker thread that runs `schedule -> run -> commit`.

Every public method may be called from any thread. The worker alone touches the scheduler, the tree
and the tensors; callers hand it commands and read events from queues of their own.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import queue
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import torch

from agentkv.engine.call import Call, Sequel, tiers_of
from agentkv.engine.config import EngineConfig, host_bytes
from agentkv.engine.device import find_device
from agentkv.engine.errors import (
    ContextLengthExceeded,
    EngineClosed,
    EngineError,
    InvalidRequest,
    PoolTooSmall,
    QueueFull,
    RankFailed,
)
from agentkv.engine.keep import Keeper, Pinned, lasting, seconds_of
from agentkv.engine.kv.cache import KVCache
from agentkv.engine.kv.eviction import POLICIES as EVICTION
from agentkv.engine.kv.pins import PAUSE_SECONDS, PIN_SECONDS
from agentkv.engine.kv.pool import KV_DTYPES, KVPool, dtype_name
from agentkv.engine.kv.tree import Namespace, TreeError
from agentkv.engine.kv.view import Allowed, NodeView, TreeView, find, view
from agentkv.engine.lower import LowerTiers
from agentkv.engine.memory import pool_tokens_for
from agentkv.engine.model.load import LoadedModel, load_model
from agentkv.engine.model.shard import Shard
from agentkv.engine.model.store import resolve
from agentkv.engine.run.backends import (
    attention_mark,
    attention_name,
    device_tokens,
    make_runner,
    no_bits,
)
from agentkv.engine.run.calibrate import fp8_scales
from agentkv.engine.run.grammar import CompiledGrammar, GrammarCompiler
from agentkv.engine.run.parallel_facts import RankFacts
from agentkv.engine.run.parallel_runner import Parallel, ParallelRunner, Runner
from agentkv.engine.run.sampler import Sampler, score_prompt
from agentkv.engine.sched.batch import ForwardBatch
from agentkv.engine.sched.request import Request, Status
from agentkv.engine.sched.scheduler import Scheduler, Step
from agentkv.engine.stats import Counters
from agentkv.engine.stream import AsyncStream, Stream
from agentkv.engine.text.render import Renderer
from agentkv.engine.text.tokenizer import Tokenizer
from agentkv.engine.types import (
    Grammar,
    IntArray,
    LoadFacts,
    RenderedPrompt,
    RequestOutput,
    SamplingParams,
    as_ids,
)
from agentkv.engine.why import Explainer
from agentkv.kernels.fp8 import FP8

log = logging.getLogger("agentkv.engine")

LEARN_TOKENS = 64
"""A step teaches the prefill rate when it computes at least so many tokens."""

SaltFilter = Callable[[str | None], bool]
T = TypeVar("T")
Prompt = str | Sequence[int] | IntArray | RenderedPrompt


class Engine:
    """A language model with a prefix cache.

    `Engine(model="smollm2-135m", page_size=16)` or `Engine(EngineConfig(...))`. Use it as a context
    manager, or call `close`. Loading the model happens here and takes seconds.

    Raises `ModelNotFound`, `UnsupportedModel` or `PullFailed` when the model cannot be had.
    """

    def __init__(self, config: EngineConfig | None = None, **overrides: Any) -> None:
        self.config = replace(config or EngineConfig(), **overrides)
        self._calls: dict[str, Call] = {}
        self._sequels: dict[str, Sequel] = {}
        self._commands: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._dead: BaseException | None = None
        self._parallel: Parallel | None = None
        self._lost: RankFailed | None = None
        ready: Future[None] = Future()
        self._worker = threading.Thread(
            target=self._run, args=(ready,), name="agentkv-engine", daemon=True
        )
        self._worker.start()
        try:
            ready.result()
        except KeyboardInterrupt:
            self._closing = True  # as soon as it has loaded: nobody is left to close it
            raise
        _close_at_exit(self)

    def _load(self) -> None:
        """Load model and pool. On the worker, since torch's thread count belongs to a thread."""
        config = self.config
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        device = find_device(config.device)
        self.attention_name = attention_name(config, device)
        self.device_name = "cpu" if device is None else str(device.where)
        if device is not None:
            device.adopt()
        if config.tensor_parallel > 1:
            # Exchanges between GPUs inside of recorded steps have not been tried.
            config = self.config = replace(config, cuda_graphs=False)
        directory = resolve(config.model)
        dtype = _dtype(config.dtype, on_cpu=device is None)
        where = torch.device("cpu") if device is None else device.where
        model: LoadedModel
        if config.tensor_parallel > 1:
            self._parallel = Parallel(
                config, directory, dtype=dtype, where=where, failed=self._rank_failed
            )
            model = self._parallel.load()
        else:
            model = load_model(directory, dtype=dtype, device=str(where))
        shape = model.config
        kv_dtype = dtype if config.kv_dtype == "auto" else KV_DTYPES[config.kv_dtype]
        lower = config.prefix_cache and bool(
            host_bytes(config.host_cache, 1 << 30) or config.stored
        )
        host_dtype = KV_DTYPES.get(config.host_kv_dtype, kv_dtype) if lower else kv_dtype
        self.model_name = config.served_name or config.model.rstrip("/").rsplit("/", 1)[-1]
        self.max_model_len = min(config.max_model_len or shape.max_position, shape.max_position)
        self.vocab_size = shape.vocab_size
        self.fingerprint = model.fingerprint
        self.page_size = config.page_size
        self.dtype_name = str(dtype).removeprefix("torch.")
        self.kv_dtype_name = dtype_name(kv_dtype)
        self.host_kv_dtype_name = dtype_name(host_dtype)
        self.created = int(time.time())
        self.tokenizer = Tokenizer.load(directory)
        self.renderer = Renderer.load(
            directory, self.tokenizer, replay_entries=config.replay_entries
        )
        per_token = KVPool.bytes_per_token(
            shape.num_layers, shape.num_kv_heads, shape.head_dim, kv_dtype
        )
        scales = None
        if FP8 in (kv_dtype, host_dtype):
            shard = Shard(0, config.tensor_parallel)
            scales = fp8_scales(model, self.tokenizer, directory, shard)
        tokens = config.pool_tokens
        if tokens is None and device is None:
            # Ranks on a CPU share its memory.
            tokens = pool_tokens_for(per_token * config.tensor_parallel, self.max_model_len)
        elif tokens is None:
            assert device is not None
            tokens = device_tokens(config, model, device, per_token, self.max_model_len)
            tokens = tokens if self._parallel is None else self._parallel.fewest(tokens)
        pages = max(1, tokens // config.page_size)
        self.pool_tokens = pages * config.page_size
        self._pool = KVPool(
            layers=shape.num_layers,
            slots=self.pool_tokens,
            kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            dtype=kv_dtype,
            device=model.device,
            scales=scales,
        )
        self.kv_bytes = self._pool.nbytes * config.tensor_parallel

        def make() -> tuple[Runner, Sampler]:
            return make_runner(
                config, model, self._pool, device, self.attention_name, self.max_model_len
            )

        self._runner: Runner
        self._runner, self._sampler = (
            make() if self._parallel is None else self._parallel.runner(self.pool_tokens, make)
        )
        self.bit_exact = self._runner.bit_exact
        self._eos = frozenset(self.tokenizer.eos_ids) | frozenset(shape.eos_token_ids)
        self._grammars = GrammarCompiler(self.tokenizer, vocab_size=shape.vocab_size, eos=self._eos)
        self._explainer = Explainer(lambda ids: self.tokenizer.decode(ids, skip_special=False))
        self._counters = Counters()
        self._keeper = Keeper()
        self._lower: LowerTiers | None = None
        if lower:
            self._lower = LowerTiers(
                config, self._pool, self.fingerprint, self._post, self._forward_nothing, device
            )
            self.bit_exact = self.bit_exact and not self._lower.lossy
        if config.deterministic and not self.bit_exact:
            self._close_lower()
            raise no_bits(config, device, self.attention_name, self.dtype_name)
        self._new_cache()

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
                # The loop is closed: nobody listens any more, and the call is aborted elsewhere.
                log.debug("an event of %s came after its loop had closed", call.id)

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
        with self._wake:
            call = self._calls.get(request_id)
            if call is None or self._dead is not None:
                return False
            self._commands.append(lambda: self._abort(call))
            self._wake.notify()
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
        return self._ask(lambda: self._keeper.pin(self._scheduler, namespace, ids, ttl))

    def unpin(self, pin_id: str, *, of: SaltFilter | None = None) -> bool:
        """End a pin. False if there is none of that id (among those whose salt `of` accepts)."""
        allowed = _allowed(of)
        return self._ask(lambda: self._keeper.unpin(self._scheduler, pin_id, allowed))

    def pins(self, *, of: SaltFilter | None = None) -> list[Pinned]:
        """The pins of all salts, or of those that `of` accepts, oldest first."""
        allowed = _allowed(of)
        return self._ask(lambda: self._keeper.pins(self._scheduler, allowed))

    def pause(self, session: str, *, ttl: float = PAUSE_SECONDS, salt: str | None = None) -> int:
        """A session runs a tool, or waits for a person: let its prefix leave late, until its next
        call or for `ttl` seconds. A hint: returns the tokens that are kept, 0 if none."""
        ttl, namespace = seconds_of(ttl), self._namespace(salt)
        return self._ask(lambda: self._keeper.pause(self._scheduler, namespace, session, ttl))

    def release(self, session: str, *, salt: str | None = None) -> int:
        """A session is over: what only it used leaves first. Returns its tokens. A hint."""
        namespace = self._namespace(salt)
        return self._ask(lambda: self._keeper.release(self._scheduler, namespace, session))

    def prefetch(self, session: str, *, salt: str | None = None) -> int:
        """A session is about to resume: bring its prefix back from lower tiers. Returns the tokens
        that they have of it. A hint: does not wait."""
        namespace = self._namespace(salt)
        return self._ask(lambda: self._keeper.prefetch(self._scheduler, namespace, session))

    def tree(
        self, *, of: SaltFilter | None = None, most: int = 2000, depth: int | None = None
    ) -> TreeView:
        """The radix tree as it is now: all of it, or what has a salt that `of` accepts; at most
        `most` nodes."""
        allowed = _allowed(of)
        return self._ask(lambda: view(self._scheduler.cache.tree, allowed, most=most, depth=depth))

    def node(
        self, node_id: str, *, of: SaltFilter | None = None
    ) -> tuple[NodeView, IntArray, int] | None:
        """One node of the tree: how it is, the token ids of its edge, and its number of children.
        None when no node, or more than one, has an id that begins like this."""
        allowed = _allowed(of)
        return self._ask(lambda: find(self._scheduler.cache.tree, node_id, allowed))

    def save(self) -> int:
        """Start to bring to disk what is not there yet. Returns the prefixes that will be written;
        0 without a disk tier."""

        def work() -> int:
            tiers = self._scheduler.cache.tiers
            if tiers is None:
                return 0
            found = tiers.store_all()
            tiers.work()
            return found

        return self._ask(work)

    def flush(self) -> int:
        """Empty the cache, pins included. Requests in flight keep what they use. Returns the tokens freed now."""

        def work() -> int:
            return self._scheduler.cache.flush()

        return self._ask(work)

    def stats(self) -> dict[str, Any]:
        """Counters over the engine's life, and the pool as it is now (tokens)."""

        def work() -> dict[str, Any]:
            cache, scheduler = self._scheduler.cache, self._scheduler
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
                "refused_pins_total": self._keeper.refused_pins,
                "hints_total": dict(self._keeper.hints),
                "tiers": {} if self._lower is None else self._lower.stats(),
                **self._counters.snapshot(),
            }

        return self._ask(work)

    def check(self, *, deep: bool = True) -> None:
        """Verify page conservation now. Raises `TreeError` with every term of the account; and
        `RankFailed` when the processes of a tensor-parallel engine have not run the same batches."""

        def work() -> None:
            self._scheduler.check(deep=deep)
            if isinstance(self._runner, ParallelRunner):
                self._runner.check()

        self._ask(work)

    def ranks(self) -> list[RankFacts]:
        """What each process of a tensor-parallel engine has computed, as it says it; empty for any
        other engine."""

        def work() -> list[RankFacts]:
            return self._runner.facts() if isinstance(self._runner, ParallelRunner) else []

        return self._ask(work)

    @property
    def alive(self) -> bool:
        """False once the engine was closed or its worker failed. Costs nothing."""
        return not self._closing and self._dead is None

    def close(self) -> None:
        """Abort what runs, stop the worker, free the pool. Closing twice does nothing."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._worker is not threading.current_thread():
            self._worker.join()

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
            *((("attention", mark),) if mark is not None else ()),
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
        with self._wake:
            self._must_run()
            waiting = sum(c.facts is None for c in list(self._calls.values()))
            if waiting >= self.config.max_queued:
                raise QueueFull(waiting=waiting)
            if call.id in self._calls:
                raise InvalidRequest(f"The request id {call.id!r} is in use.", param="request_id")
            self._calls[call.id] = call
            self._commands.append(lambda: self._start(call))
            self._wake.notify()

    def _ask(self, work: Callable[[], T]) -> T:
        """Run `work` on the worker, between two steps, and return its result."""
        future: Future[T] = Future()

        def command() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        with self._wake:
            self._must_run()
            self._commands.append(command)
            self._wake.notify()
        return future.result()

    def _must_run(self) -> None:
        if self._closing or self._dead is not None:
            why = "is closed" if self._dead is None else f"failed: {self._why_dead()}"
            raise EngineClosed(f"The engine {why}; create a new one.") from self._dead

    def _why_dead(self) -> str:
        return str(self._dead).rstrip(".") or type(self._dead).__name__

    # -- on the worker's thread

    def _run(self, ready: Future[None]) -> None:
        try:
            self._load()
        except BaseException as error:
            self._closing = True
            if self._parallel is not None:
                error = self._parallel.explain(error)
                self._parallel.close()
            ready.set_exception(error)
            return
        ready.set_result(None)
        try:
            with torch.inference_mode():
                while True:
                    with self._wake:
                        while (
                            not (self._commands or self._closing or self._lost)
                            and self._scheduler.idle
                        ):
                            self._wake.wait()
                        commands, self._commands = self._commands, deque()
                        closing = self._closing
                    for command in commands:
                        command()
                    if closing:
                        break
                    if self._lost is not None:
                        raise self._lost
                    if not self._step() and not self._scheduler.idle:
                        # What waits waits for a transfer, which wakes us when it has ended.
                        with self._wake:
                            if not (self._commands or self._closing):
                                self._wake.wait(0.05)
        except BaseException as error:
            log.exception("the engine's worker failed")
            self._dead = error
        finally:
            self._shut_down()

    def _step(self) -> bool:
        """schedule -> run -> commit, and the account is checked when nothing is left to do.
        False when there was nothing that can run now."""
        step = self._scheduler.schedule()
        if step is None:
            return False
        began = time.perf_counter()
        for request in step.admitted:
            self._admitted(request, began)
        try:
            tokens = self._forward(step)
        except Exception as error:
            if isinstance(error, RankFailed):
                raise
            log.exception("a step of %d sequences failed", len(step.works))
            self._scheduler.drop(step)
            failed = {self._sequels[w.request.id].call.id for w in step.works}
            for call_id in failed:
                self._fail(
                    self._calls[call_id], EngineError(f"A step of the engine failed: {error}")
                )
            return True
        ended = self._scheduler.commit(step, tokens)
        now = time.perf_counter()
        self._counters.stepped(step, now - began)
        if self._lower is not None and len(step.batch.input_ids) >= LEARN_TOKENS:
            self._lower.costs.computed(
                len(step.batch.input_ids), now - began, before=float(step.batch.positions.sum())
            )
        for work, token in zip(step.works, tokens, strict=True):
            one = self._sequels.get(work.request.id)  # none: its call failed in this step
            if token is not None and not work.request.aborted and one is not None:
                self._sampled(one, now)
        for request in ended:
            sequel = self._sequels.get(request.id)
            if sequel is not None and not sequel.done:
                self._ended(sequel, now)
        if self.config.check_invariants:
            self._scheduler.check(deep=True)
        elif self._scheduler.idle:
            self._check_idle()
        return True

    def _forward(self, step: Step) -> list[int | None]:
        logits = self._runner.forward(step.batch)
        rows: list[int] = []
        states = []
        row = 0
        for work in step.works:
            request, last = work.request, row + work.rows - 1
            sequel = self._sequels[request.id]
            if (
                request.score_next is not None
                and request.score_next < request.prompt_len
                and work.rows
            ):
                end = min(work.start + work.count, request.prompt_len - 1)
                targets = request.ids[work.first_row + 1 : end + 1]
                top = sequel.call.params.prompt_logprobs or 0
                scores = score_prompt(logits[row : row + len(targets)].cpu(), targets, top)
                sequel.call.scored(work.first_row + 1, scores)
                request.score_next = end + 1
            if work.samples:
                rows.append(last)
                states.append(sequel.state)
            row += work.rows
        if not rows:
            return [None] * len(step.works)
        picked = logits if len(rows) == len(logits) else logits[rows]
        sampled = iter(self._sampler.sample(picked, states))
        out: list[int | None] = []
        for work in step.works:
            if not work.samples:
                out.append(None)
                continue
            token = next(sampled)
            self._sequels[work.request.id].sampled(token)
            out.append(token.token_id)
        return out

    def _start(self, call: Call) -> None:
        for sequel in call.sequels:
            self._sequels[sequel.request.id] = sequel
            self._scheduler.submit(sequel.request)

    def _abort(self, call: Call) -> None:
        call.aborted = True
        for sequel in call.sequels:
            if not sequel.done:
                self._scheduler.abort(sequel.request)
                self._ended(sequel, time.perf_counter())

    def _admitted(self, request: Request, now: float) -> None:
        sequel = self._sequels[request.id]
        call = sequel.call
        if call.facts is not None:
            return
        self._keeper.began(self._scheduler, call.namespace, call.session)
        matched = request.cached_tokens or 0
        limit = request.match_limit if self.config.prefix_cache else 0
        verdict, record = self._explainer.explain(
            call.prompt,
            namespace=call.namespace,
            session=call.session,
            matched=matched,
            known=request.known_tokens,
            page_size=self.page_size,
            limit=limit,
        )
        call.admitted(
            now,
            matched,
            verdict,
            record,
            self.page_size,
            self._counters.ms_per_token,
            request.loaded,
            _load_facts(request),
        )
        self._counters.admitted(len(call.prompt.token_ids), tiers_of(matched, request.loaded))

    def _sampled(self, sequel: Sequel, now: float) -> None:
        """A token came: emit its text, and end the choice where a stop string stands."""
        if sequel.done:
            return
        sequel.call.token_came(now)
        self._counters.generation_tokens += 1
        matcher = sequel.state.matcher
        if matcher is not None and matcher.error is not None:
            self._fail(sequel.call, EngineError(f"The grammar cannot be followed: {matcher.error}"))
            return
        sequel.feed()
        if sequel.output.stopped is not None or sequel.complete:
            self._scheduler.finish(sequel.request, "stop")
            self._ended(sequel, now)
        elif sequel.request.status is not Status.FINISHED:
            sequel.send()

    def _ended(self, sequel: Sequel, now: float) -> None:
        sequel.end()
        self._sequels.pop(sequel.request.id, None)
        call = sequel.call
        if not call.done:
            return
        self._calls.pop(call.id, None)
        self._counters.ended(call)
        if call.record is not None:
            first = call.sequels[0].request
            tokens = first.tokens.copy()
            self._explainer.finished(call.record, tokens, first.computed)
            self._keeper.ended(call.namespace, call.session, tokens[: first.computed])
        if call.pin is not None and not call.aborted:
            end = lasting(call.prompt.spans)
            if end:
                ids = call.prompt.token_ids[:end]
                self._keeper.try_pin(self._scheduler, call.namespace, ids, call.pin)
        if call.prompt.text and not call.aborted:
            for one in call.sequels:
                cut = one.text if one.output.stopped is not None else None
                self.renderer.remember(call.prompt, one.state.output_ids, text=cut)
        call.finish(now, self.model_name)

    def _fail(self, call: Call, error: EngineError) -> None:
        for sequel in call.sequels:
            self._scheduler.abort(sequel.request)
            self._sequels.pop(sequel.request.id, None)
        self._calls.pop(call.id, None)
        call.emit(error)

    def _check_idle(self) -> None:
        """With nothing running, every page is free or evictable; if not, say so and start afresh."""
        try:
            self._scheduler.check()
            if self._scheduler.cache.tree.locked_tokens:
                raise TreeError(
                    f"{self._scheduler.cache.tree.locked_tokens} tokens locked when idle"
                )
        except TreeError:
            log.exception("the KV account is wrong; the cache is emptied")
            self._new_cache()

    def _rank_failed(self, failure: RankFailed) -> None:
        """From another thread: the worker, if it is not in a step that fails by itself, ends."""
        with self._wake:
            self._lost = failure
            self._wake.notify()

    def _post(self, work: Callable[[], None]) -> None:
        """Have the worker run `work` between two steps."""
        with self._wake:
            self._commands.append(work)
            self._wake.notify()

    def _forward_nothing(self, tokens: int) -> None:
        """Prefill so many tokens into slots that nobody has yet, to see how long it takes."""
        count = min(tokens, self.pool_tokens, self.max_model_len)
        row = np.arange(count, dtype=np.int32)
        ends = np.array([0, count], dtype=np.int32)
        with torch.inference_mode():
            logits = self._runner.forward(
                ForwardBatch(
                    input_ids=row % np.int32(self.vocab_size),
                    positions=row,
                    out_slots=row,
                    qo_indptr=ends,
                    kv_indptr=ends,
                    kv_indices=row,
                    logit_rows=row[-1:],
                )
            )
            logits.cpu()  # a device is waited for

    def _new_cache(self) -> None:
        config = self.config
        cache = KVCache(
            self.pool_tokens // config.page_size,
            config.page_size,
            enabled=config.prefix_cache,
            eviction=EVICTION[config.eviction],
            floor=int(config.namespace_floor * self.pool_tokens),
            quota=int(config.namespace_quota * self.pool_tokens)
            if config.namespace_quota < 1
            else None,
            pin_tokens=int(config.pin_share * self.pool_tokens),
            pause_tokens=int(config.pause_share * self.pool_tokens),
            lower=None if self._lower is None else self._lower.make,
        )
        self._scheduler = Scheduler(
            cache,
            max_batch_tokens=config.max_batch_tokens,
            max_running=config.max_running,
            policy=config.policy,
        )

    def _close_lower(self) -> None:
        """Let running calls go, and bring what the cache holds to disk."""
        if getattr(self, "_lower", None) is None:
            return
        assert self._lower is not None

        def run_posted() -> None:
            with self._wake:
                commands, self._commands = self._commands, deque()
            for command in commands:
                command()

        try:
            if self._dead is None:
                for request in [*self._scheduler.running, *self._scheduler.waiting]:
                    self._scheduler.finish(request, "abort")
                self._lower.finish(run_posted)
        except Exception:
            log.exception("the tiers below the pool could not be written out")
        finally:
            self._lower.close()

    def _shut_down(self) -> None:
        with self._wake:
            self._closing = True
            commands, self._commands = self._commands, deque()
        error = EngineClosed(
            "The engine was closed while the call ran."
            if self._dead is None
            else f"The engine failed while the call ran: {self._why_dead()}."
        )
        error.__cause__ = self._dead
        for command in commands:
            # Calls that had not started end with the others below; questions get their answer.
            command()
        self._close_lower()
        if self._parallel is not None:
            self._parallel.close()
        for call in list(self._calls.values()):
            self._calls.pop(call.id, None)
            call.emit(error)


def _load_facts(request: Request) -> LoadFacts | None:
    estimate = request.load_estimate
    if estimate is None:
        return None
    return LoadFacts(
        tokens=estimate.tokens,
        loaded=sum(request.loaded.values()),
        load_ms=estimate.load * 1000,
        compute_ms=estimate.compute * 1000,
    )


def _dtype(name: str, *, on_cpu: bool) -> torch.dtype:
    if name == "auto":
        amx = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
        return torch.bfloat16 if amx or not on_cpu else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


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
