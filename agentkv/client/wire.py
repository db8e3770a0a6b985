"""Requests to `/v1/chat/completions` and `/v1/completions` of `agentkv serve`, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentkv.client.base import CallRequest, ChatRequest
from agentkv.client.errors import InvalidCall
from agentkv.engine.types import SamplingParams

_DEFAULT = SamplingParams()
_SAME = (
    "max_tokens",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "ignore_eos",
    "n",
)


def path(request: CallRequest) -> str:
    """The route of a request, behind the base URL."""
    return "/chat/completions" if isinstance(request, ChatRequest) else "/completions"


def body(request: CallRequest, model: str | None, *, stream: bool) -> dict[str, Any]:
    """The request's JSON for `agentkv serve`: what differs from a default."""
    p = request.params
    out: dict[str, Any] = {"model": model} if model else {}
    if isinstance(request, ChatRequest):
        out["messages"] = list(request.messages)
        if request.tools:
            out["tools"] = list(request.tools)
        if request.tool_choice is not None:
            out["tool_choice"] = request.tool_choice
        if request.parallel_tool_calls is not None:
            out["parallel_tool_calls"] = request.parallel_tool_calls
        if request.response_format is not None:
            out["response_format"] = dict(request.response_format)
        if not request.add_generation_prompt:
            out["add_generation_prompt"] = False
        if request.continue_final_message:
            out["continue_final_message"] = True
        if request.template_kwargs:
            out["chat_template_kwargs"] = dict(request.template_kwargs)
        if p.logprobs is not None:
            out["logprobs"], out["top_logprobs"] = True, p.logprobs
    else:
        out["prompt"] = request.prompt
        if p.logprobs is not None:
            out["logprobs"] = p.logprobs
    # The defaults of servers differ here, so these are always said.
    out["temperature"] = p.temperature
    for name in _SAME:
        value = getattr(p, name)
        if value != getattr(_DEFAULT, name):
            out[name] = value
    if p.stop:
        out["stop"] = list(p.stop)
    if p.stop_token_ids:
        out["stop_token_ids"] = list(p.stop_token_ids)
    if p.include_stop:
        out["include_stop_str_in_output"] = True
    if p.logit_bias:
        out["logit_bias"] = {str(k): v for k, v in p.logit_bias.items()}
    extension: dict[str, Any] = {}
    if request.session is not None:
        extension["session"] = request.session
    if isinstance(request, ChatRequest) and request.pin is not None:
        extension["pin"] = request.pin
    if isinstance(request, ChatRequest) and request.auto_policy != "auto":
        extension["auto_policy"] = request.auto_policy
    if extension:
        out["agentkv"] = extension
    if request.salt is not None:
        out["cache_salt"] = request.salt
    if stream:
        out["stream"] = True
        out["stream_options"] = {"include_usage": True}
    return out


def encoded(body: Mapping[str, Any]) -> bytes:
    """A request's JSON in UTF-8. Raises `InvalidCall` for what has no such form."""
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except UnicodeEncodeError as error:
        where = next(_broken(body, ""), "a text")
        raise InvalidCall(
            f"{where} holds a lone surrogate (half of a character); send valid Unicode."
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidCall(f"The request cannot be written as JSON: {error}") from error


def _broken(value: Any, where: str) -> Iterator[str]:
    """Where in a request texts stand that UTF-8 cannot hold."""
    if isinstance(value, str):
        if any("\ud800" <= char <= "\udfff" for char in value):
            yield where
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _broken(name, f"a name in {where or 'the request'}")
            yield from _broken(inner, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _broken(inner, f"{where}[{i}]")
