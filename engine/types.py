"""The values that pass between the engine's rooms, and out of it.

Only numpy here: nothing in this file may import torch, so that the layout, the report and the
linter can share these definitions without a model runtime.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agentkv.engine.errors import InvalidRequest

IntArray = npt.NDArray[np.int32]
Tier = Literal["device", "host", "disk"]
FinishReason = Literal["stop", "length", "abort"]

MAX_N = 16
MAX_STOP = 16
MAX_LOGPROBS = 20
MAX_LOGIT_BIAS = 1024


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an output must look like.

    `kind`: `json_schema` (`text` is the schema's JSON), `lark` (llguidance's dialect of Lark), or
    `regex`. `opener`: a token and a bias (natural log) that is added to its logit at the first
    position only, which weighs a tool call's beginning against plain text.
    """

    kind: Literal["json_schema", "lark", "regex"]
    text: str
    opener: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("json_schema", "lark", "regex"):
            raise InvalidRequest(
                f"grammar.kind must be json_schema, lark or regex, got {self.kind!r}.",
                param="grammar",
            )
        if not isinstance(self.text, str) or not self.text:
            raise InvalidRequest("grammar.text must be a non-empty string.", param="grammar")
        if self.opener is not None:
            token, bias = self.opener
            if token < 0 or not math.isfinite(bias):
                raise InvalidRequest(
                    f"grammar.opener must be a token id and a finite bias, got {self.opener!r}.",
                    param="grammar",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose tokens, and when to stop.

    `max_tokens=None` means "whatever is left of the context window"; 0 means prefill only.
    `temperature=0` is greedy. `top_k=0` and `top_p=1` are off. `logprobs=k` asks for the sampled
    token's log-probability and the k most likely alternatives; `prompt_logprobs=k` asks the same
    of prompt tokens from `prompt_logprobs_start` on (which bounds how much of the prompt may come
    out of the cache: a cached token has no logits). `n` choices share one prefill.

    `grammar`: every choice fits it, whole and in time: when few tokens are left, those are taken
    that complete it. A choice that is complete ends with `stop`, end token or not; only stop
    strings and aborts leave it unfinished.

    Raises `InvalidRequest` naming the field when a value is out of range or not finite.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_logprobs_start: int = 0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    n: int = 1
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        def need(ok: bool, name: str, rule: str) -> None:
            if not ok:
                raise InvalidRequest(
                    f"{name} must be {rule}, got {getattr(self, name)!r}.", param=name
                )

        def number(name: str, low: float, high: float, rule: str) -> None:
            value = getattr(self, name)
            good = isinstance(value, (int, float)) and not isinstance(value, bool)
            need(good and math.isfinite(value) and low <= value <= high, name, rule)

        def whole(name: str, low: int, high: int, rule: str, *, optional: bool = False) -> None:
            value = getattr(self, name)
            if optional and value is None:
                return
            good = isinstance(value, int) and not isinstance(value, bool)
            need(good and low <= value <= high, name, rule)

        whole("max_tokens", 0, 2**31 - 1, "a whole number of at least 0", optional=True)
        whole("min_tokens", 0, 2**31 - 1, "a whole number of at least 0")
        number("temperature", 0.0, 100.0, "between 0 and 100")
        number("top_p", 0.0, 1.0, "above 0 and at most 1")
        need(self.top_p > 0, "top_p", "above 0 and at most 1")
        whole("top_k", 0, 2**31 - 1, "a whole number of at least 0 (0 is off)")
        number("min_p", 0.0, 1.0, "between 0 and 1")
        number("repetition_penalty", 0.01, 100.0, "between 0.01 and 100")
        number("presence_penalty", -2.0, 2.0, "between -2 and 2")
        number("frequency_penalty", -2.0, 2.0, "between -2 and 2")
        whole("seed", -(2**63), 2**63 - 1, "a 64-bit whole number", optional=True)
        need(len(self.stop) <= MAX_STOP, "stop", f"at most {MAX_STOP} strings")
        need(all(isinstance(s, str) and s for s in self.stop), "stop", "non-empty strings")
        whole("logprobs", 0, MAX_LOGPROBS, f"between 0 and {MAX_LOGPROBS}", optional=True)
        whole("prompt_logprobs", 0, MAX_LOGPROBS, f"between 0 and {MAX_LOGPROBS}", optional=True)
        whole("prompt_logprobs_start", 0, 2**31 - 1, "a whole number of at least 0")
        need(
            len(self.logit_bias) <= MAX_LOGIT_BIAS,
            "logit_bias",
            f"at most {MAX_LOGIT_BIAS} entries",
        )
        need(
            all(math.isfinite(v) and -100 <= v <= 100 for v in self.logit_bias.values()),
            "logit_bias",
            "a map of token ids to numbers between -100 and 100",
        )
        whole("n", 1, MAX_N, f"between 1 and {MAX_N}")
        need(self.grammar is None or isinstance(self.grammar, Grammar), "grammar", "a Grammar")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Tokens `[start, end)` of a rendered prompt that one named part of it produced.

    `name` is unique within a prompt (`tools`, `documents`, `messages[3]`); `kind` is one of the
    segment kinds (`tools`, `instructions`, `examples`, `documents`, `memory`, `history`,
    `context`, `question`, `template`). `digest` is a hash of the content that was rendered, which
    tells "the same text in another place" from "other text". `preview` is a short piece of it.
    """

    name: str
    kind: str
    start: int
    end: int
    role: str | None = None
    stability: str | None = None
    digest: str = ""
    items: tuple[str, ...] = ()
    """Names of the ordered parts inside (tool names, document ids), for order changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPrompt:
    """A prompt as token ids, and which part of the request each token belongs to.

    `token_ids`: int32 `[n]`. `spans` are disjoint, sorted, and cover `[0, n)`.
    `replayed_tokens`: how many ids were taken over from an earlier call of the same conversation
    instead of being tokenised again. `anchor` is the renderer's own note of the prompt's open end
    (a digest of what stands before it, and the character and token where it starts), by which the
    output is found again in the next prompt.
    """

    token_ids: IntArray
    spans: tuple[Span, ...] = ()
    text: str = ""
    replayed_tokens: int = 0
    anchor: tuple[bytes, int, int] | None = None


Reason = Literal[
    "first_call",
    "appended",
    "text_changed",
    "tool_changed",
    "tool_order",
    "document_order",
    "history_edited",
    "history_truncated",
    "reasoning_stripped",
    "template",
    "retokenized",
    "evicted",
    "other_namespace",
    "model_changed",
    "sub_page_tail",
    "unknown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """Where reuse ended, and why: prompt position `token` was the first one to be computed."""

    token: int
    reason: Reason
    segment: str | None = None
    was: str | None = None
    now: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class LoadFacts:
    """What lower tiers had of a prompt that the device had not, and what came of it.

    `tokens` could have been brought back, `loaded` were. Expected milliseconds, as known when it
    was decided: `load_ms` to bring them back, `compute_ms` to compute them.
    """

    tokens: int
    loaded: int
    load_ms: float
    compute_ms: float


def load_block(load: LoadFacts | None) -> dict[str, float] | None:
    """`LoadFacts` as the report and the server show them."""
    if load is None:
        return None
    return {
        "tokens": load.tokens,
        "loaded": load.loaded,
        "load_ms": round(load.load_ms, 3),
        "compute_ms": round(load.compute_ms, 3),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFacts:
    """What one call reused. Fixed once, when the request is first admitted; see invariant P.

    Always `0 <= cached_tokens <= prompt_tokens - 1` and
    `cached_tokens == sum(cached_by_tier.values())`. `reusable_tokens` is how much of the prompt
    this session's earlier calls had in common with it; `resident_tokens` how much of it was still
    in memory on arrival. The three numbers tell where a hit was lost.
    """

    prompt_tokens: int
    cached_tokens: int
    cached_by_tier: Mapping[str, int]
    reusable_tokens: int
    resident_tokens: int
    page_size: int
    miss: Miss | None
    span_cached: tuple[tuple[str, int, int], ...] = ()
    load: LoadFacts | None = None
    """`(span name, tokens, cached tokens)` for each span of the prompt."""

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Milliseconds. `ttft` runs from submission to the first token; `decode` from there on."""

    queue: float = 0.0
    prefill: float = 0.0
    ttft: float = 0.0
    decode: float = 0.0
    saved_prefill: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log-probability of one token, and of the most likely alternatives at its position."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One completion. `stop_reason` is the matched stop string or token id, if any."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    opener_scores: tuple[float, float] | None = None
    """Log-probabilities of `Grammar.opener`'s token and of the best other one, where it was set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """The finished call: its choices, and the facts of its reuse."""

    request_id: str
    model: str
    prompt_token_ids: IntArray
    choices: tuple[Choice, ...]
    cache: CacheFacts
    times: Timings
    spans: tuple[Span, ...] = ()
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    session: str | None = None

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.choices[0].token_ids

    @property
    def finish_reason(self) -> FinishReason:
        return self.choices[0].finish_reason

    @property
    def completion_tokens(self) -> int:
        return sum(len(c.token_ids) for c in self.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One step of a streamed call.

    The first event of a call has `index == -1`: it carries `cache` only, as soon as the request is
    admitted (before its first token). Then come text deltas by choice. A choice's last event has
    `finish_reason`. The very last event of the call carries `output`, and no text.
    """

    index: int
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    cache: CacheFacts | None = None
    output: RequestOutput | None = None


def as_ids(ids: Any) -> IntArray:
    """`ids` (list, tuple or array of token ids) as a contiguous int32 array of shape `[n]`."""
    out = np.ascontiguousarray(ids, dtype=np.int32)
    if out.ndim != 1:
        raise InvalidRequest(
            f"token ids must be one flat list, got shape {out.shape}.", param="prompt"
        )
    return out
