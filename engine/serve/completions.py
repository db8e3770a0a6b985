"""`POST /v1/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.serve import grammar, sse
from agentkv.engine.serve.body import read
from agentkv.engine.serve.chat import check_stream_options
from agentkv.engine.serve.errors import unsupported
from agentkv.engine.serve.job import Call, Job
from agentkv.engine.serve.logprobs import completion_logprobs
from agentkv.engine.serve.params import completion_params, salt_of, session_of
from agentkv.engine.serve.prompts import read_prompts
from agentkv.engine.serve.protocol import CompletionRequest
from agentkv.engine.serve.record import Asked
from agentkv.engine.serve.replies import TextChoice, TextCompletion
from agentkv.engine.serve.service import service_of
from agentkv.engine.serve.usage import cache_headers, usage_of
from agentkv.engine.serve.wire import JSONReply
from agentkv.engine.types import Choice, IntArray, RequestOutput, StreamEvent, TokenLogprob

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine


async def completions(request: Request) -> Response:
    """Continue one or several texts, streamed or whole."""
    service = service_of(request)
    service.accept()
    body = await read(request, CompletionRequest)
    wanted = body.value
    engine = service.accept(wanted.model)
    check_stream_options(wanted)
    if wanted.stream and wanted.echo and wanted.logprobs is not None:
        raise unsupported(
            "echo", "a stream cannot give the log-probabilities of the prompt; leave `stream` out."
        )
    form = grammar.one_of(
        {
            "response_format": grammar.of_response_format(wanted.response_format),
            "structured_outputs": grammar.of_structured_outputs(wanted.structured_outputs),
        }
    )
    params = completion_params(wanted, engine.vocab_size)
    params = await grammar.constrain(engine, params, form)
    session = session_of(wanted, request.headers.get("x-agentkv-session"))
    salt = salt_of(wanted.cache_salt, request.state.tenant)
    prompts = await read_prompts(service, wanted.prompt)
    calls = [Call(prompt=ids, params=params, session=session, salt=salt) for ids in prompts]
    asked = Asked(wanted, request.state.tenant)
    job = Job(service, engine, calls, request.state.request_id, asked)
    reply = _Reply(engine, wanted, prompts, request.state.request_id)
    if not wanted.stream:
        outputs = await job.outputs()
        headers = {**cache_headers([o.cache for o in outputs]), **body.headers}
        return JSONReply(reply.whole(outputs), headers=headers)
    facts = await job.open()
    return sse.EventStream(
        reply.stream(job),
        headers={**cache_headers(facts), **body.headers},
        ping=service.config.ping_interval,
        close=job.aclose,
    )


class _Reply:
    """Builds the reply. Choices are numbered over all prompts: prompt 0's first, then prompt 1's."""

    def __init__(
        self,
        engine: Engine,
        wanted: CompletionRequest,
        prompts: Sequence[IntArray],
        request_id: str,
    ) -> None:
        self._tokenizer = engine.tokenizer
        self._wanted = wanted
        self._prompts = prompts
        self._n = wanted.n or 1
        self._head: dict[str, Any] = {
            "id": f"cmpl-{request_id}",
            "created": int(time.time()),
            "model": engine.model_name,
            "system_fingerprint": f"fp_{engine.fingerprint[:12]}",
        }

    def whole(self, outputs: Sequence[RequestOutput]) -> TextCompletion:
        choices = [
            self._choice(i, output, choice)
            for i, output in enumerate(outputs)
            for choice in output.choices
        ]
        return TextCompletion(
            **self._head,
            choices=choices,
            usage=usage_of(outputs),
            prompt_token_ids=self._prompt_ids(0),
        )

    def _choice(self, number: int, output: RequestOutput, choice: Choice) -> TextChoice:
        prefix = self._prompt_text(number) if self._wanted.echo else ""
        out = TextChoice(
            index=number * self._n + choice.index,
            text=prefix + choice.text,
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
        )
        if self._wanted.logprobs is not None:
            entries: list[TokenLogprob | None] = list(choice.logprobs or ())
            ids = list(choice.token_ids)
            if self._wanted.echo:
                entries = [*(output.prompt_logprobs or ()), *entries]
                ids = [*self._prompts[number].tolist(), *ids]
            out.logprobs = completion_logprobs(entries, ids, self._tokenizer)
        if self._wanted.return_token_ids:
            out.token_ids = list(choice.token_ids)
            out.prompt_token_ids = self._prompt_ids(number)
        return out

    def _prompt_ids(self, number: int) -> Any:
        return self._prompts[number].tolist() if self._wanted.return_token_ids else UNSET

    def _prompt_text(self, number: int) -> str:
        prompt = self._wanted.prompt
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt[number], str):
            return str(prompt[number])
        return self._tokenizer.decode(self._prompts[number], skip_special=False)

    async def stream(self, job: Job) -> AsyncGenerator[bytes, None]:
        """Echoed prompts, text, one finish for each choice, the usage if asked for, `[DONE]`."""
        options = self._wanted.stream_options
        with_usage = bool(options and options.include_usage)
        usage: Any = None if with_usage else UNSET
        outputs: dict[int, RequestOutput] = {}
        lengths: dict[int, int] = {}
        for choice in self._openings():
            lengths[choice.index] = len(choice.text)
            yield sse.event(TextCompletion(**self._head, choices=[choice], usage=usage))
        async with aclosing(job.events()) as events:
            async for number, event in events:
                if event.output is not None:
                    outputs[number] = event.output
                for choice in self._chunks(number, event, lengths):
                    yield sse.event(TextCompletion(**self._head, choices=[choice], usage=usage))
        if with_usage:
            last = usage_of([outputs[i] for i in sorted(outputs)])
            yield sse.event(TextCompletion(**self._head, choices=[], usage=last))
        yield sse.DONE

    def _openings(self) -> list[TextChoice]:
        """A first chunk for each choice, where one is needed: the prompt, as text or as ids."""
        if not (self._wanted.echo or self._wanted.return_token_ids):
            return []
        out = []
        for number in range(len(self._prompts)):
            for i in range(self._n):
                text = self._prompt_text(number) if self._wanted.echo else ""
                choice = TextChoice(index=number * self._n + i, text=text)
                if self._wanted.return_token_ids:
                    choice.token_ids = []
                    choice.prompt_token_ids = self._prompt_ids(number)
                out.append(choice)
        return out

    def _chunks(self, number: int, event: StreamEvent, lengths: dict[int, int]) -> list[TextChoice]:
        if event.index < 0:
            return []
        with_ids = bool(self._wanted.return_token_ids)
        scored = self._wanted.logprobs is not None and bool(event.logprobs)
        if not (event.text or scored or event.finish_reason or (with_ids and event.token_ids)):
            return []
        index = number * self._n + event.index
        chunk = TextChoice(
            index=index,
            text=event.text,
            finish_reason=event.finish_reason,
            stop_reason=event.stop_reason,
        )
        if scored:
            offset = lengths.get(index, 0)
            chunk.logprobs = completion_logprobs(
                event.logprobs or (), event.token_ids, self._tokenizer, offset=offset
            )
        lengths[index] = lengths.get(index, 0) + len(event.text)
        if with_ids:
            chunk.token_ids = list(event.token_ids)
        return [chunk]
