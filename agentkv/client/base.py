"""One call as a value, its reply, and the protocol that every way to an engine follows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agentkv.engine.text.calls.answer import CallDelta, ToolCall
from agentkv.engine.types import SamplingParams
from agentkv.report.report import CacheReport

HintAction = Literal["pause", "release", "prefetch"]


_WANTED = "a number of seconds above 0 (Timeouts(total=None) waits for ever)"


def _seconds(value: object) -> bool:
    """Whether it is a time that a call can be given."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < float("inf")  # type: ignore[operator]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds; None waits for ever. `first_token` runs from sending to the first token, `chunk`
    between two chunks of a stream, `total` over the whole call, retries included."""

    connect: float | None = 5.0
    first_token: float | None = 60.0
    chunk: float | None = 30.0
    total: float | None = 600.0

    def __post_init__(self) -> None:
        for name in ("connect", "first_token", "chunk", "total"):
            value = getattr(self, name)
            if value is not None and not _seconds(value):
                raise ValueError(f"Timeouts({name}=...) must be {_WANTED}, got {value!r}.")

    @classmethod
    def of(cls, value: Timeouts | float | None) -> Timeouts:
        """`value` itself, the defaults for None, or a number as the limit of the whole call.
        Raises ValueError for anything else."""
        if isinstance(value, Timeouts):
            return value
        if value is None:
            return cls()
        if not _seconds(value):
            raise ValueError(f"timeout must be Timeouts(...), or {_WANTED}, got {value!r}.")
        seconds = float(value)
        return cls(connect=min(5.0, seconds), first_token=seconds, chunk=seconds, total=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A conversation that wants an answer: OpenAI-style messages and tools, marks kept.

    `session` names the conversation for the report's comparisons; `salt` keeps its cache apart
    from everybody else's. `tool_choice`, `parallel_tool_calls` and `response_format` have OpenAI's
    shapes (`any` is `required`); they narrow what may be answered and never change the prompt.
    `pin`: seconds for which tools, instructions and documents are to stay in the engine's cache.
    `auto_policy` says how a model that is free to call a tool comes to do so: `free`, `score`, or
    `auto`, which takes what suits the model.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None
    auto_policy: str = "auto"
    params: SamplingParams = field(default_factory=SamplingParams)
    session: str | None = None
    salt: str | None = None
    pin: float | None = None
    request_id: str | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_kwargs: Mapping[str, Any] | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest:
    """A raw prompt that wants to be continued."""

    prompt: str
    params: SamplingParams = field(default_factory=SamplingParams)
    session: str | None = None
    salt: str | None = None
    request_id: str | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)


CallRequest = ChatRequest | TextRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyChoice:
    """One completion. `logprobs` is in OpenAI's shape, where asked for and offered.

    `opener_scores`: log-probabilities of beginning a tool call and of the best other beginning,
    where the two were weighed. `token_ids`: what was sampled, where the engine says it.
    """

    index: int
    text: str
    finish_reason: str | None
    logprobs: Mapping[str, Any] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    opener_scores: tuple[float, float] | None = None
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """A finished call: its choices, and the report of what it reused."""

    id: str
    model: str
    choices: tuple[ReplyChoice, ...]
    report: CacheReport

    @property
    def text(self) -> str:
        return self.choices[0].text if self.choices else ""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.choices[0].tool_calls if self.choices else ()

    @property
    def finish_reason(self) -> str | None:
        return self.choices[0].finish_reason if self.choices else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDelta:
    """A piece of a streamed call. The last one of a call carries `reply`, and no text."""

    index: int = 0
    text: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()
    finish_reason: str | None = None
    reply: ChatReply | None = None


class Client(Protocol):
    """A way to an engine. Safe from many threads; async methods from any event loop.

    Every method raises the errors of `agentkv.client.errors`. Closing a stream early, or
    cancelling its task, aborts the call; what it computed stays in the cache.
    """

    def send(self, request: CallRequest) -> ChatReply: ...

    def stream(self, request: CallRequest) -> Iterator[ChatDelta]: ...

    async def asend(self, request: CallRequest) -> ChatReply: ...

    def astream(self, request: CallRequest) -> AsyncIterator[ChatDelta]: ...

    def count(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Tokens of the prompt that these messages and tools make, exactly."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, in which nothing is taken for a control token."""
        ...

    def hint(
        self, session: str, action: HintAction, *, ttl: float, salt: str | None = None
    ) -> int | None:
        """Tell the engine that a session pauses (for `ttl` seconds at most), is over, or will
        resume. Returns the tokens that it concerns; None where no engine takes hints."""
        ...

    def context_window(self) -> int | None:
        """Tokens of prompt and completion that the model takes together; None if unknown."""
        ...

    def close(self) -> None:
        """Let go of what this client holds. Safe to call twice."""
        ...

    async def aclose(self) -> None: ...
