"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.answers import Answers, Ended, Piece, steps
from agentkv.engine.chat import Chat
from agentkv.engine.serve import sse
from agentkv.engine.serve.body import read
from agentkv.engine.serve.conversation import ready
from agentkv.engine.serve.errors import invalid
from agentkv.engine.serve.job import Call, Job
from agentkv.engine.serve.logprobs import chat_logprobs
from agentkv.engine.serve.params import chat_params, salt_of, session_of
from agentkv.engine.serve.protocol import ChatRequest, Sampling
from agentkv.engine.serve.record import Asked
from agentkv.engine.serve.replies import (
    CallPart,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChunkChoice,
    Delta,
    Function,
    FunctionPart,
    Message,
    MessageCall,
)
from agentkv.engine.serve.service import service_of
from agentkv.engine.serve.usage import cache_headers, usage_of
from agentkv.engine.serve.wire import JSONReply
from agentkv.engine.text.calls.answer import CallDelta
from agentkv.engine.types import Choice, RequestOutput, StreamEvent

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine


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
    chat = await ready(service, wanted, params, salt)
    pin = wanted.agentkv.pin if wanted.agentkv is not None else None
    call = Call(prompt=chat.prompt, params=chat.params, session=session, salt=salt, pin=pin)
    asked = Asked(wanted, request.state.tenant, chat)
    job = Job(service, engine, [call], request.state.request_id, asked)
    reply = _Reply(engine, wanted, chat, request.state.request_id)
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


class _Reply:
    """Builds the reply of one chat request."""

    def __init__(self, engine: Engine, wanted: ChatRequest, chat: Chat, request_id: str) -> None:
        self._tokenizer = engine.tokenizer
        self._wanted = wanted
        self._prompt = chat.prompt
        self._answers = Answers(chat)
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{request_id}",
            "created": int(time.time()),
            "model": engine.model_name,
            "system_fingerprint": f"fp_{engine.fingerprint[:12]}",
        }

    def whole(self, output: RequestOutput) -> ChatCompletion:
        ended = self._answers.end(output)
        return ChatCompletion(
            **self._head,
            choices=[self._choice(*pair) for pair in zip(output.choices, ended, strict=True)],
            usage=usage_of([output]),
            prompt_token_ids=self._prompt_ids(),
        )

    def _choice(self, choice: Choice, ended: Ended) -> ChatChoice:
        scored = self._wanted.logprobs and choice.logprobs is not None
        answer = ended.answer
        message = Message(content=answer.text)
        if answer.reasoning:
            message.reasoning_content = answer.reasoning
        if answer.tool_calls:
            message.content = answer.text or None
            message.tool_calls = [
                MessageCall(id=call.id, function=Function(name=call.name, arguments=call.arguments))
                for call in answer.tool_calls
            ]
        return ChatChoice(
            index=choice.index,
            message=message,
            finish_reason=ended.finish_reason,
            stop_reason=choice.stop_reason,
            logprobs=chat_logprobs(choice.logprobs or (), self._tokenizer) if scored else None,
            token_ids=list(choice.token_ids) if self._wanted.return_token_ids else UNSET,
        )

    def _prompt_ids(self) -> Any:
        return self._prompt.token_ids.tolist() if self._wanted.return_token_ids else UNSET

    async def stream(self, job: Job) -> AsyncGenerator[bytes, None]:
        """Roles, text and calls, one finish for each choice, the usage if asked for, `[DONE]`."""
        options = self._wanted.stream_options
        with_usage = bool(options and options.include_usage)
        usage: Any = None if with_usage else UNSET
        for index in range(self._wanted.n or 1):
            first = ChunkChoice(index=index, delta=Delta(role="assistant", content=self._opening()))
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

    def _opening(self) -> str | None:
        """The content of a first chunk: none yet, where the answer may be calls and nothing else,
        so that what a client puts together equals the reply as a whole."""
        may_call = bool(self._wanted.tools) and self._wanted.tool_choice != "none"
        return None if may_call else ""

    def _chunks(self, event: StreamEvent) -> list[ChunkChoice]:
        """The chunks of one engine event: what is new, then the choice's end."""
        piece = self._answers.feed(event)
        if piece is None:
            return []
        with_ids = bool(self._wanted.return_token_ids)
        scored = bool(self._wanted.logprobs) and bool(event.logprobs)
        deltas = list(_deltas(piece))
        if not deltas and (scored or (with_ids and event.token_ids)):
            deltas.append(Delta(content=""))
        out = [ChunkChoice(index=event.index, delta=delta) for delta in deltas]
        if out and scored:
            out[0].logprobs = chat_logprobs(event.logprobs or (), self._tokenizer)
        if piece.finish_reason is not None:
            end = ChunkChoice(index=event.index, delta=Delta(), finish_reason=piece.finish_reason)
            if event.stop_reason is not None:
                end.stop_reason = event.stop_reason
            out.append(end)
        if with_ids:
            for chunk in out:
                chunk.token_ids = []
            if deltas:
                out[0].token_ids = list(event.token_ids)
        return out


def _deltas(piece: Piece) -> Iterator[Delta]:
    """What a piece says, a delta for each step of each call: readers that look at the first call
    of a chunk only miss nothing."""
    if piece.delta.reasoning:
        yield Delta(reasoning_content=piece.delta.reasoning)
    if piece.delta.text:
        yield Delta(content=piece.delta.text)
    for call in steps(piece.delta.calls):
        yield Delta(tool_calls=[_part(call)])


def _part(call: CallDelta) -> CallPart:
    if call.id is None:
        return CallPart(index=call.index, function=FunctionPart(arguments=call.arguments))
    function = FunctionPart(name=call.name or "", arguments=call.arguments)
    return CallPart(index=call.index, id=call.id, type="function", function=function)
