"""`POST /generate`: token ids in and out, in the body shape that SGLang's native route has.

A list of texts or of id lists, or `n` above 1, gives a list of replies. In a stream each event
holds the whole text so far of one choice, as that route does; `meta_info.cached_tokens` is always
an integer.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.serve import sse
from agentkv.engine.serve.body import read
from agentkv.engine.serve.errors import invalid
from agentkv.engine.serve.grammar import constrain
from agentkv.engine.serve.job import Call, Job
from agentkv.engine.serve.logprobs import finite
from agentkv.engine.serve.middleware import clean_request_id
from agentkv.engine.serve.params import extension_session, generate_params, salt_of
from agentkv.engine.serve.prompts import read_prompts
from agentkv.engine.serve.protocol import GenerateRequest
from agentkv.engine.serve.record import Asked
from agentkv.engine.serve.service import service_of
from agentkv.engine.serve.usage import cache_block, cache_headers
from agentkv.engine.serve.wire import JSONReply
from agentkv.engine.types import CacheFacts, Choice, RequestOutput, TokenLogprob


async def generate(request: Request) -> Response:
    """Continue one or several texts or id lists."""
    service = service_of(request)
    engine = service.accept()
    body = await read(request, GenerateRequest)
    wanted = body.value
    if (wanted.text is None) == (wanted.input_ids is None):
        raise invalid(
            "Give either `text` or `input_ids`.", param="text", code="missing_required_parameter"
        )
    params, form = generate_params(wanted, engine.vocab_size)
    params = await constrain(engine, params, form)
    session = extension_session(wanted.agentkv, request.headers.get("x-agentkv-session"))
    salt = salt_of(wanted.cache_salt, request.state.tenant)
    if wanted.text is not None:
        prompts = await read_prompts(service, wanted.text, "text")
        many = isinstance(wanted.text, list)
    else:
        prompts = await read_prompts(service, wanted.input_ids or [], "input_ids")
        many = bool(wanted.input_ids) and isinstance((wanted.input_ids or [0])[0], list)
    request_id = clean_request_id(wanted.rid) or request.state.request_id
    calls = [Call(prompt=ids, params=params, session=session, salt=salt) for ids in prompts]
    asked = Asked(wanted, request.state.tenant)
    job = Job(service, engine, calls, request_id, asked)
    started = time.perf_counter()
    if not wanted.stream:
        outputs = await job.outputs()
        replies = [
            _reply(request_id, output, choice, time.perf_counter() - started)
            for output in outputs
            for choice in output.choices
        ]
        headers = {**cache_headers([o.cache for o in outputs]), **body.headers}
        return JSONReply(replies if many or params.n > 1 else replies[0], headers=headers)
    facts = await job.open()
    return sse.EventStream(
        _stream(job, request_id, facts, params.n),
        headers={**cache_headers(facts), **body.headers},
        ping=service.config.ping_interval,
        close=job.aclose,
    )


def _reply(
    request_id: str, output: RequestOutput, choice: Choice, seconds: float
) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "id": request_id,
        "finish_reason": _finish(choice.finish_reason, choice.stop_reason, len(choice.token_ids)),
        "prompt_tokens": output.cache.prompt_tokens,
        "completion_tokens": len(choice.token_ids),
        "cached_tokens": output.cache.cached_tokens,
        "e2e_latency": seconds,
        "agentkv": cache_block(output),
    }
    if choice.logprobs is not None:
        meta["output_token_logprobs"] = [_pair(entry) for entry in choice.logprobs]
        meta["output_top_logprobs"] = [_top(entry) for entry in choice.logprobs]
    if output.prompt_logprobs is not None:
        meta["input_token_logprobs"] = [_pair(entry) for entry in output.prompt_logprobs]
        meta["input_top_logprobs"] = [_top(entry) for entry in output.prompt_logprobs]
    return {"text": choice.text, "output_ids": list(choice.token_ids), "meta_info": meta}


def _finish(reason: str | None, stop: str | int | None, length: int) -> dict[str, Any] | None:
    if reason is None:
        return None
    if reason == "length":
        return {"type": "length", "length": length}
    return {"type": reason, "matched": stop} if reason == "stop" else {"type": reason}


def _pair(entry: TokenLogprob | None) -> list[Any] | None:
    return None if entry is None else [finite(entry.logprob), entry.token_id, None]


def _top(entry: TokenLogprob | None) -> list[list[Any]] | None:
    return (
        None
        if entry is None
        else [[finite(logprob), token_id, None] for token_id, logprob in entry.top]
    )


async def _stream(
    job: Job, request_id: str, facts: Sequence[CacheFacts], n: int
) -> AsyncGenerator[bytes, None]:
    texts: dict[int, str] = {}
    ids: dict[int, list[int]] = {}
    scores: dict[int, list[TokenLogprob]] = {}
    async with aclosing(job.events()) as events:
        async for number, part in events:
            if part.index < 0 or part.output is not None:
                continue
            key = number * n + part.index
            texts[key] = texts.get(key, "") + part.text
            ids.setdefault(key, []).extend(part.token_ids)
            scores.setdefault(key, []).extend(part.logprobs or ())
            meta: dict[str, Any] = {
                "id": request_id,
                "finish_reason": _finish(part.finish_reason, part.stop_reason, len(ids[key])),
                "prompt_tokens": facts[number].prompt_tokens,
                "completion_tokens": len(ids[key]),
                "cached_tokens": facts[number].cached_tokens,
            }
            if scores[key]:
                meta["output_token_logprobs"] = [_pair(entry) for entry in scores[key]]
            yield sse.event(
                {"index": key, "text": texts[key], "output_ids": ids[key], "meta_info": meta}
            )
    yield sse.DONE
