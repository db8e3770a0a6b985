"""Requests and replies of `/v1/chat/completions` and `/v1/completions` as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkv.client.base import CallRequest, ChatDelta, ChatReply, ChatRequest, ReplyChoice
from agentkv.engine.types import SamplingParams
from agentkv.report.report import CacheReport

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
    """The request's JSON: what differs from a default, so that other servers accept it too."""
    p = request.params
    out: dict[str, Any] = {"model": model} if model else {}
    if isinstance(request, ChatRequest):
        out["messages"] = list(request.messages)
        if request.tools:
            out["tools"] = list(request.tools)
            if request.tool_choice is not None:
                out["tool_choice"] = request.tool_choice
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
    if request.session is not None:
        out["agentkv"] = {"session": request.session}
    if request.salt is not None:
        out["cache_salt"] = request.salt
    if stream:
        out["stream"] = True
        out["stream_options"] = {"include_usage": True}
    return out


def reply(data: Mapping[str, Any]) -> ChatReply:
    """A whole reply. Raises ValueError when it has no choices."""
    choices = data.get("choices")
    if not isinstance(choices, Sequence) or not choices:
        raise ValueError("the reply has no choices.")
    return ChatReply(
        id=str(data.get("id") or ""),
        model=str(data.get("model") or ""),
        choices=tuple(
            ReplyChoice(
                index=int(c.get("index", i)),
                text=_text(c),
                finish_reason=c.get("finish_reason"),
                logprobs=c.get("logprobs"),
            )
            for i, c in enumerate(choices)
        ),
        report=CacheReport.from_usage(data.get("usage") or {}),
    )


def _text(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    if isinstance(message, Mapping):
        return str(message.get("content") or "")
    return str(choice.get("text") or "")


@dataclass(slots=True)
class _Growing:
    texts: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    scored: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Assembly:
    """Puts the chunks of a stream together, so that its end has the same reply as a whole call."""

    id: str = ""
    model: str = ""
    usage: Mapping[str, Any] | None = None
    choices: dict[int, _Growing] = field(default_factory=dict)

    def feed(self, data: Mapping[str, Any]) -> list[ChatDelta]:
        """The deltas of one chunk."""
        self.id = self.id or str(data.get("id") or "")
        self.model = self.model or str(data.get("model") or "")
        if data.get("usage"):
            self.usage = data["usage"]
        out: list[ChatDelta] = []
        for i, choice in enumerate(data.get("choices") or ()):
            index = int(choice.get("index", i))
            growing = self.choices.setdefault(index, _Growing())
            delta = choice.get("delta")
            text = str(
                (delta.get("content") if isinstance(delta, Mapping) else choice.get("text")) or ""
            )
            reason = choice.get("finish_reason")
            scored = choice.get("logprobs")
            if isinstance(scored, Mapping):
                growing.scored.extend(scored.get("content") or ())
            growing.texts.append(text)
            growing.finish_reason = reason or growing.finish_reason
            if text or reason:
                out.append(ChatDelta(index=index, text=text, finish_reason=reason))
        return out

    @property
    def complete(self) -> bool:
        """Whether every choice came to its end."""
        return bool(self.choices) and all(c.finish_reason for c in self.choices.values())

    def reply(self) -> ChatReply:
        return ChatReply(
            id=self.id,
            model=self.model,
            choices=tuple(
                ReplyChoice(
                    index=index,
                    text="".join(c.texts),
                    finish_reason=c.finish_reason,
                    logprobs={"content": c.scored} if c.scored else None,
                )
                for index, c in sorted(self.choices.items())
            ),
            report=CacheReport.from_usage(self.usage or {}),
        )
