"""Request bodies: the fields that are supported, and those that may not be ignored.

A field that is in no struct here is accepted, does nothing, and is named in the reply's
`x-agentkv-ignored` header. `REFUSED` lists the exceptions: fields that would change *what may be
generated*, which a server that drops them silently would betray.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

MAX_PROMPTS = 64
MAX_TOOLS = 256
MAX_SALT = 128
MAX_SESSION = 512


class StreamOptions(msgspec.Struct, kw_only=True):
    """`stream_options`."""

    include_usage: bool | None = None


class Extension(msgspec.Struct, kw_only=True):
    """The `agentkv` object of a request. `auto_policy`: how a model that may call a tool comes to
    do so (`free`, `score` or `auto`). `pin`: seconds for which the prompt's tools, instructions and
    documents are to stay in the cache."""

    session: str | None = None
    auto_policy: str | None = None
    pin: float | None = None


class Sampling(msgspec.Struct, kw_only=True):
    """What chat and completions have in common."""

    model: str | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[str, float] | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    cache_salt: str | None = None
    agentkv: Extension | None = None


class ChatRequest(Sampling, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionRequest(Sampling, kw_only=True):
    """`POST /v1/completions`."""

    prompt: str | list[Any]
    echo: bool | None = None
    logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None


class GenerateSampling(msgspec.Struct, kw_only=True):
    """`sampling_params` of `/generate`."""

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    sampling_seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    no_stop_trim: bool | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[str, float] | None = None
    n: int | None = None
    json_schema: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None


class GenerateRequest(msgspec.Struct, kw_only=True):
    """`POST /generate`: text or token ids in, text and token ids out."""

    text: str | list[str] | None = None
    input_ids: list[Any] | None = None
    sampling_params: dict[str, Any] | None = None
    stream: bool | None = None
    rid: str | None = None
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    top_logprobs_num: int | None = None
    cache_salt: str | None = None
    agentkv: Extension | None = None


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """`POST /tokenize`: a text (`prompt` or `content`), or messages as in a chat request."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    add_special_tokens: bool | None = None
    parse_special: bool | None = None
    return_token_strs: bool | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """`POST /detokenize`."""

    tokens: list[int]
    model: str | None = None
    skip_special_tokens: bool | None = None


class TemplateRequest(msgspec.Struct, kw_only=True):
    """`POST /apply-template`: how messages become a prompt."""

    messages: list[dict[str, Any]]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class AbortRequest(msgspec.Struct, kw_only=True):
    """`POST /abort_request`."""

    rid: str | None = None
    abort_all: bool | None = None


class PinRequest(msgspec.Struct, kw_only=True):
    """`POST /agentkv/cache/pin`: a prefix, and for how many seconds it is to be kept."""

    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    prompt: str | list[Any] | None = None
    ttl: float | None = None
    cache_salt: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class UnpinRequest(msgspec.Struct, kw_only=True):
    """`POST /agentkv/cache/unpin`."""

    pin: str


class HintRequest(msgspec.Struct, kw_only=True):
    """`POST /agentkv/cache/hint`: a session pauses for `ttl` seconds, is over, or will resume."""

    session: str
    action: Literal["pause", "release", "prefetch"]
    ttl: float | None = None
    cache_salt: str | None = None


_SCHEMA = "use `response_format`."
_OUTSIDE = "use `response_format`; /v1/completions has `structured_outputs` too."
_EBNF = "grammars are not taken; use a JSON schema, a regular expression or a list of choices."
_MODALITY = "this server takes and makes text only."

REFUSED: dict[str, str] = {
    "functions": "use `tools`.",
    "function_call": "use `tools` and `tool_choice`.",
    "guided_json": _SCHEMA,
    "guided_regex": _OUTSIDE,
    "guided_choice": _OUTSIDE,
    "guided_grammar": _EBNF,
    "structured_outputs": _SCHEMA,
    "grammar": _EBNF,
    "json_schema": _SCHEMA,
    "regex": _OUTSIDE,
    "ebnf": _EBNF,
    "structural_tag": _EBNF,
    "bad_words": "use `logit_bias`.",
    "allowed_token_ids": "use `logit_bias`.",
    "best_of": "ask for `n` choices and pick one.",
    "use_beam_search": "this server samples.",
    "suffix": "the model does not fill in the middle.",
    "chat_template": "the template comes with the model, never from a request.",
    "logits_processors": "no code runs out of a request.",
    "custom_logit_processor": "no code runs out of a request.",
    "lora_path": "adapters are not loaded.",
    "prompt_logprobs": "use `echo` with `logprobs` on /v1/completions.",
    "truncate_prompt_tokens": "a prompt is never cut silently.",
    "prompt_embeds": _MODALITY,
    "input_embeds": _MODALITY,
    "image_data": _MODALITY,
    "audio_data": _MODALITY,
    "audio": _MODALITY,
    "modalities": _MODALITY,
    "web_search_options": "this server looks nothing up.",
}

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "modalities": (["text"],),
    "function_call": ("none", "auto"),
    "truncate_prompt_tokens": (-1,),
}


def is_neutral(name: str, value: Any) -> bool:
    """Whether a refused field asks for nothing."""
    if value is None or value is False or value in ("", [], {}):
        return True
    return any(type(value) is type(v) and value == v for v in _NEUTRAL.get(name, ()))
