"""`POST /v1/chat/completions`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.serve import sse
from agentkv.engine.serve.body import read
from agentkv.engine.serve.errors import invalid
from agentkv.engine.serve.job import Call, Job
from agentkv.engine.serve.logprobs import chat_logprobs
from agentkv.engine.serve.params import chat_params, salt_of, session_of
from agentkv.engine.serve.protocol import MAX_TOOLS, ChatRequest, Sampling
from agentkv.engine.serve.replies import (
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChunkChoice,
    Delta,
    Message,
)
from agentkv.engine.serve.service import Service, service_of
from agentkv.engine.serve.usage import cache_headers, usage_of
from agentkv.engine.serve.wire import JSONReply
from agentkv.engine.types import Choice, RenderedPrompt, RequestOutput, StreamEvent

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine

_TEMPLATE_RESERVED = frozenset(
    {
        "tokenize",
        "return_dict",
        "return_tensors",
        "return_assistant_tokens_mask",
        "padding",
        "truncation",
        "max_length",
        "messages",
        "conversation",
        "tools",
        "documents",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "tokenizer_kwargs",
    }
)


async def chat_completions(request: Request) -> Response:
    """Answer a conversation, streamed or whole."""
    service = service_of(request)
    service.accept()
    body = await read(request, ChatRequest)
    wanted = body.value
    engine = service.accept(wanted.model)
    check_stream_options(wanted)
    params = chat_params(wanted, engine.vocab_size)
    session = session_of(wanted, request.headers.get("x-agentkv-session"))
    salt = salt_of(wanted.cache_salt, request.state.tenant)
    prompt = await render(
        service,
        wanted.messages,
        wanted.tools,
        salt=salt,
        add_generation_prompt=wanted.add_generation_prompt,
        continue_final_message=wanted.continue_final_message,
        template_kwargs=wanted.chat_template_kwargs,
    )
    call = Call(prompt=prompt, params=params, session=session, salt=salt)
    job = Job(service, engine, [call], request.state.request_id)
    reply = _Reply(engine, wanted, prompt, request.state.request_id)
    if not wanted.stream:
        outputs = await job.outputs()
        return JSONReply(
            reply.whole(outputs[0]), headers={**cache_headers([outputs[0].cache]), **body.headers}
        )
    facts = await job.open()
    return sse.EventStream(
        reply.stream(job),
        headers={**cache_headers(facts), **body.headers},
        ping=service.config.ping_interval,
        close=job.aclose,
    )


def check_stream_options(wanted: Sampling) -> None:
    """400 for `stream_options` without `stream`."""
    if wanted.stream_options is not None and not wanted.stream:
        raise invalid("`stream_options` needs `stream: true`.", param="stream_options")


async def render(
    service: Service,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    *,
    add_generation_prompt: bool | None,
    continue_final_message: bool | None,
    template_kwargs: Mapping[str, Any] | None,
    salt: str | None = None,
) -> RenderedPrompt:
    """The prompt of a conversation, made in a thread: templates and tokenising take a while."""
    if not messages:
        raise invalid("`messages` is empty.", param="messages")
    if tools is not None and len(tools) > MAX_TOOLS:
        raise invalid(f"`tools` takes at most {MAX_TOOLS} entries.", param="tools")
    for name in template_kwargs or ():
        if name in _TEMPLATE_RESERVED:
            raise invalid(
                f"`chat_template_kwargs` may not set `{name}`.", param="chat_template_kwargs"
            )
    service.check_size([messages, tools])
    return await asyncio.to_thread(
        service.engine.render,
        messages,
        tools or None,
        salt=salt,
        add_generation_prompt=not continue_final_message
        if add_generation_prompt is None
        else add_generation_prompt,
        continue_final_message=bool(continue_final_message),
        template_kwargs=template_kwargs,
    )


class _Reply:
    """Builds the reply of one chat request."""

    def __init__(
        self, engine: Engine, wanted: ChatRequest, prompt: RenderedPrompt, request_id: str
    ) -> None:
        self._tokenizer = engine.tokenizer
        self._wanted = wanted
        self._prompt = prompt
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{request_id}",
            "created": int(time.time()),
            "model": engine.model_name,
            "system_fingerprint": f"fp_{engine.fingerprint[:12]}",
        }

    def whole(self, output: RequestOutput) -> ChatCompletion:
        return ChatCompletion(
            **self._head,
            choices=[self._choice(choice) for choice in output.choices],
            usage=usage_of([output]),
            prompt_token_ids=self._prompt_ids(),
        )

    def _choice(self, choice: Choice) -> ChatChoice:
        scored = self._wanted.logprobs and choice.logprobs is not None
        return ChatChoice(
            index=choice.index,
            message=Message(content=choice.text),
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
            logprobs=chat_logprobs(choice.logprobs or (), self._tokenizer) if scored else None,
            token_ids=list(choice.token_ids) if self._wanted.return_token_ids else UNSET,
        )

    def _prompt_ids(self) -> Any:
        return self._prompt.token_ids.tolist() if self._wanted.return_token_ids else UNSET

    async def stream(self, job: Job) -> AsyncGenerator[bytes, None]:
        """Roles, text, one finish for each choice, the usage if asked for, `[DONE]`."""
        options = self._wanted.stream_options
        with_usage = bool(options and options.include_usage)
        usage: Any = None if with_usage else UNSET
        for index in range(self._wanted.n or 1):
            first = ChunkChoice(index=index, delta=Delta(role="assistant", content=""))
            if self._wanted.return_token_ids:
                first.token_ids = []
            ids = self._prompt_ids() if index == 0 else UNSET
            yield sse.event(
                ChatChunk(**self._head, choices=[first], usage=usage, prompt_token_ids=ids)
            )
        async with aclosing(job.events()) as events:
            async for _, event in events:
                for choice in self._chunks(event):
                    yield sse.event(ChatChunk(**self._head, choices=[choice], usage=usage))
                if event.output is not None and with_usage:
                    last = usage_of([event.output])
                    yield sse.event(ChatChunk(**self._head, choices=[], usage=last))
        yield sse.DONE

    def _chunks(self, event: StreamEvent) -> list[ChunkChoice]:
        """The chunks of one engine event: its text, then its end."""
        if event.index < 0:
            return []
        with_ids = bool(self._wanted.return_token_ids)
        scored = bool(self._wanted.logprobs) and bool(event.logprobs)
        out: list[ChunkChoice] = []
        if event.text or scored or (with_ids and event.token_ids):
            chunk = ChunkChoice(index=event.index, delta=Delta(content=event.text))
            if scored:
                chunk.logprobs = chat_logprobs(event.logprobs or (), self._tokenizer)
            if with_ids:
                chunk.token_ids = list(event.token_ids)
            out.append(chunk)
        if event.finish_reason is not None:
            end = ChunkChoice(index=event.index, delta=Delta(), finish_reason=event.finish_reason)
            if event.stop_reason is not None:
                end.stop_reason = event.stop_reason
            if with_ids:
                end.token_ids = []
            out.append(end)
        return out
