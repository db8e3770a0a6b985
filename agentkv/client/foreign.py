"""Requests to servers that are not ours, in OpenAI's protocol and nothing beyond it.

Unknown fields are an error at some servers and silently dropped at others, so none is sent. What a
request asks for and the protocol has no word for is refused, rather than left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkv.client.base import CallRequest, ChatRequest
from agentkv.client.errors import NotSupported
from agentkv.client.server import Server
from agentkv.engine.types import SamplingParams
from agentkv.prompt.marks import KEY

_DEFAULT = SamplingParams()
_SAME = ("top_p", "presence_penalty", "frequency_penalty", "seed", "n")
_OURS = (
    "top_k",
    "min_p",
    "repetition_penalty",
    "ignore_eos",
    "stop_token_ids",
    "include_stop",
    "prompt_logprobs",
    "grammar",
)


def body(
    request: CallRequest,
    model: str | None,
    *,
    stream: bool,
    server: Server,
    cache_key: bool | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The request's JSON. Raises `NotSupported` naming what the protocol cannot say.

    `cache_key`: whether the session goes out as `prompt_cache_key` (None: to OpenAI only).
    `extra`: further fields, sent as they are. A prefill (`max_tokens` 0) asks for one token, the
    fewest that servers take.
    """
    _check(request)
    p = request.params
    out: dict[str, Any] = {"model": model} if model else {}
    if isinstance(request, ChatRequest):
        out["messages"] = [plain_message(m) for m in request.messages]
        if request.tools:
            out["tools"] = [_unmarked(tool) for tool in request.tools]
            if request.tool_choice is not None:
                choice = request.tool_choice
                out["tool_choice"] = "required" if choice == "any" else choice
            if request.parallel_tool_calls is not None:
                out["parallel_tool_calls"] = request.parallel_tool_calls
        if request.response_format is not None:
            out["response_format"] = dict(request.response_format)
        if p.logprobs is not None:
            out["logprobs"], out["top_logprobs"] = True, p.logprobs
    else:
        out["prompt"] = request.prompt
        if p.logprobs is not None:
            out["logprobs"] = p.logprobs
    if p.max_tokens is not None:
        chat = isinstance(request, ChatRequest)
        # OpenAI's newer models refuse the old name; other servers do not all know the new one.
        name = "max_completion_tokens" if server.openai and chat else "max_tokens"
        out[name] = max(1, p.max_tokens)
    out["temperature"] = p.temperature
    for name in _SAME:
        value = getattr(p, name)
        if value != getattr(_DEFAULT, name):
            out[name] = value
    if p.stop:
        out["stop"] = list(p.stop)
    if p.logit_bias:
        out["logit_bias"] = {str(k): v for k, v in p.logit_bias.items()}
    if request.session is not None and (server.openai if cache_key is None else cache_key):
        out["prompt_cache_key"] = request.session
    if stream:
        out["stream"] = True
        out["stream_options"] = {"include_usage": True}
    out.update(extra or {})
    return out


def plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without marks. Plain text parts become one string, joined as they are, so that
    marking a text does not change what the server sees; parts with more to say stay parts."""
    out = _unmarked(message)
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [_unmarked(p) if isinstance(p, Mapping) else p for p in content]
        if all(_is_plain(part) for part in parts):
            out["content"] = "".join(p if isinstance(p, str) else p["text"] for p in parts)
        else:
            out["content"] = parts
    return out


def _unmarked(value: Mapping[str, Any]) -> dict[str, Any]:
    out = {k: v for k, v in value.items() if k != KEY}
    extras = out.get("extras")
    if isinstance(extras, Mapping) and KEY in extras:
        rest = {k: v for k, v in extras.items() if k != KEY}
        out = {k: v for k, v in out.items() if k != "extras"} | ({"extras": rest} if rest else {})
    return out


def _is_plain(part: Any) -> bool:
    return isinstance(part, str) or (
        isinstance(part, dict)
        and set(part) <= {"type", "text"}
        and part.get("type", "text") == "text"
        and isinstance(part.get("text"), str)
    )


def _check(request: CallRequest) -> None:
    """Refuse what would be lost on the way."""
    p = request.params
    lost = [name for name in _OURS if getattr(p, name) != getattr(_DEFAULT, name)]
    if p.min_tokens > 1:
        # One token is what every server gives anyway.
        lost.append("min_tokens")
    if request.salt is not None:
        lost.append("salt")
    if isinstance(request, ChatRequest):
        if request.template_kwargs:
            lost.append("template_kwargs")
        if request.continue_final_message:
            lost.append("continue_final_message")
        if not request.add_generation_prompt and p.max_tokens != 0:
            lost.append("add_generation_prompt")
        if request.auto_policy == "score":
            lost.append("auto_policy")
    if lost:
        error = NotSupported(
            f"{', '.join(lost)}: OpenAI's protocol has no such field, and this server is not "
            "`agentkv serve`. Leave it out, or give the server's own field in `extra_body`."
        )
        error.param = lost[0]
        raise error
