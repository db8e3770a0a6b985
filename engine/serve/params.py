"""From request fields to sampling parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.serve.body import convert
from agentkv.engine.serve.errors import invalid, unsupported
from agentkv.engine.serve.grammar import of_sampling, one_of
from agentkv.engine.serve.protocol import (
    MAX_SALT,
    MAX_SESSION,
    ChatRequest,
    CompletionRequest,
    Extension,
    GenerateRequest,
    GenerateSampling,
    Sampling,
)
from agentkv.engine.types import MAX_LOGIT_BIAS, Grammar, SamplingParams


def chat_params(request: ChatRequest, vocab_size: int) -> SamplingParams:
    """What a chat request says of sampling; tools and formats are `conversation.ready`'s."""
    if request.top_logprobs is not None and not request.logprobs:
        raise invalid("`top_logprobs` needs `logprobs: true`.", param="top_logprobs")
    wanted = (request.top_logprobs or 0) if request.logprobs else None
    most = request.max_completion_tokens
    if most is None:
        most = request.max_tokens
    names = {"logprobs": "top_logprobs"}
    if request.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    fields = {**_common(request, vocab_size), "max_tokens": most, "logprobs": wanted}
    return _sampling(fields, names.get)


def completion_params(request: CompletionRequest, vocab_size: int) -> SamplingParams:
    """With `echo`, `logprobs` covers the prompt too."""
    fields = {
        **_common(request, vocab_size),
        "max_tokens": request.max_tokens,
        "logprobs": request.logprobs,
        "prompt_logprobs": request.logprobs if request.echo else None,
    }
    return _sampling(fields, {"prompt_logprobs": "logprobs"}.get)


def generate_params(
    request: GenerateRequest, vocab_size: int
) -> tuple[SamplingParams, tuple[str, Grammar] | None]:
    """`/generate` names a few things differently and nests them in `sampling_params`.

    The second value is the field that asks for a grammar, and that grammar, not compiled yet.
    """
    s = convert(request.sampling_params or {}, GenerateSampling, "sampling_params.")
    for name in ("ebnf", "structural_tag"):
        if getattr(s, name):
            raise unsupported(f"sampling_params.{name}", "use `json_schema` or `regex`.")
    which = "json_schema" if s.json_schema is not None else "regex"
    asked = one_of({f"sampling_params.{which}": of_sampling(s.json_schema, s.regex)})
    wanted = (request.top_logprobs_num or 0) if request.return_logprob else None
    start = request.logprob_start_len
    scores_prompt = wanted is not None and start is not None and start >= 0
    common = Sampling(
        min_tokens=s.min_new_tokens,
        temperature=s.temperature,
        top_p=s.top_p,
        top_k=s.top_k,
        min_p=s.min_p,
        repetition_penalty=s.repetition_penalty,
        presence_penalty=s.presence_penalty,
        frequency_penalty=s.frequency_penalty,
        seed=s.sampling_seed,
        stop=s.stop,
        stop_token_ids=s.stop_token_ids,
        include_stop_str_in_output=s.no_stop_trim,
        ignore_eos=s.ignore_eos,
        logit_bias=s.logit_bias,
        n=s.n,
    )
    fields = {
        **_common(common, vocab_size),
        "max_tokens": s.max_new_tokens,
        "logprobs": wanted,
        "prompt_logprobs": wanted if scores_prompt else None,
        "prompt_logprobs_start": start if scores_prompt and start is not None else 0,
    }
    return _sampling(fields, lambda name: _GENERATE.get(name, f"sampling_params.{name}")), asked


_GENERATE = {
    "max_tokens": "sampling_params.max_new_tokens",
    "min_tokens": "sampling_params.min_new_tokens",
    "seed": "sampling_params.sampling_seed",
    "logprobs": "top_logprobs_num",
    "prompt_logprobs": "top_logprobs_num",
    "prompt_logprobs_start": "logprob_start_len",
}
"""What `/generate` calls the engine's fields."""


def _sampling(fields: Mapping[str, Any], name_of: Callable[[str], str | None]) -> SamplingParams:
    """Parameters of `fields`. A wrong one is named as the request names it (None: as the engine)."""
    try:
        return SamplingParams(**fields)
    except InvalidRequest as error:
        name = name_of(error.param) if error.param is not None else None
        if error.param is None or name is None:
            raise
        said = name + str(error).removeprefix(error.param)
        raise InvalidRequest(said, param=name) from None


def _common(request: Sampling, vocab_size: int) -> dict[str, Any]:
    """The fields that were given; what was not keeps the engine's default.

    `top_k: -1` is off, as in other servers. `n > 1` with `temperature: 0` gives equal choices.
    """
    top_k = request.top_k
    given: dict[str, Any] = {
        "min_tokens": request.min_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": 0 if top_k == -1 else top_k,
        "min_p": request.min_p,
        "repetition_penalty": request.repetition_penalty,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "seed": request.seed,
        "include_stop": request.include_stop_str_in_output,
        "ignore_eos": request.ignore_eos,
        "n": request.n,
    }
    out = {name: value for name, value in given.items() if value is not None}
    stop = request.stop
    out["stop"] = (stop,) if isinstance(stop, str) else tuple(stop or ())
    out["stop_token_ids"] = check_ids(request.stop_token_ids or (), vocab_size, "stop_token_ids")
    out["logit_bias"] = _logit_bias(request.logit_bias or {}, vocab_size)
    return out


def _logit_bias(given: Mapping[str, float], vocab_size: int) -> dict[int, float]:
    if len(given) > MAX_LOGIT_BIAS:
        raise invalid(f"`logit_bias` takes at most {MAX_LOGIT_BIAS} entries.", param="logit_bias")
    out: dict[int, float] = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < vocab_size):
            raise invalid(
                f"`logit_bias` has the key {key[:40]!r}, which is no token id of this model "
                f"(0 to {vocab_size - 1}).",
                param="logit_bias",
            )
        out[int(key)] = value
    return out


def check_ids(ids: Sequence[int], vocab_size: int, param: str) -> tuple[int, ...]:
    """`ids`, when each is a token id of the model; 400 otherwise."""
    if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
        raise invalid(f"`{param}` holds an id outside 0 to {vocab_size - 1}.", param=param)
    return tuple(ids)


def session_of(request: Sampling, header: str | None) -> str | None:
    """Which conversation the call belongs to: the most specific field that was given."""
    extension = request.agentkv.session if request.agentkv is not None else None
    return check_session(extension or request.prompt_cache_key or header or request.user or None)


def check_session(session: str | None) -> str | None:
    """400 when a session's name is overlong."""
    if session is not None and len(session) > MAX_SESSION:
        raise invalid(f"A session's name has at most {MAX_SESSION} characters.", param="agentkv")
    return session


def salt_of(cache_salt: str | None, tenant: str | None) -> str | None:
    """The namespace of the call, of what the client asked for and whose key it used.

    The pair is framed, so that ("a", "bc") and ("ab", "c") differ.
    """
    if cache_salt is not None and not 1 <= len(cache_salt) <= MAX_SALT:
        raise invalid(f"`cache_salt` must have 1 to {MAX_SALT} characters.", param="cache_salt")
    if tenant is None:
        return cache_salt
    return json.dumps([tenant, cache_salt])


def extension_session(extension: Extension | None, header: str | None) -> str | None:
    """As `session_of`, for `/generate`."""
    return check_session((extension.session if extension else None) or header or None)
