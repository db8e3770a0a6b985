"""Every error that the engine raises on purpose.

Each message says what happened, why, and what to do next. `code` is the string that the
HTTP server puts into `error.code`, so the two surfaces never drift apart.
"""

from __future__ import annotations

from collections.abc import Sequence


class EngineError(Exception):
    """Base of all errors that agentkv's engine raises on purpose."""

    code = "engine_error"


class InvalidRequest(EngineError):
    """A parameter is out of range or of the wrong type.

    `param` names the offending field (or None when the request as a whole is wrong).
    """

    code = "invalid_value"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextLengthExceeded(EngineError):
    """Prompt plus completion does not fit the model's context window. Never truncated silently."""

    code = "context_length_exceeded"

    def __init__(self, *, limit: int, prompt_tokens: int, max_tokens: int) -> None:
        super().__init__(
            f"This model's maximum context length is {limit} tokens. However, you requested "
            f"{prompt_tokens + max_tokens} tokens ({prompt_tokens} in the messages, {max_tokens} "
            "in the completion). Shorten the messages or lower max_tokens."
        )
        self.limit = limit
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens


class PoolTooSmall(EngineError):
    """The request can never fit the KV pool, however empty it is."""

    code = "kv_pool_too_small"

    def __init__(self, *, needed: int, total: int, page_size: int) -> None:
        super().__init__(
            f"The request needs {needed} KV pages of {page_size} tokens, and the whole pool has "
            f"{total}. Raise pool_tokens (or --pool-tokens), or shorten the request."
        )
        self.needed = needed
        self.total = total


class QueueFull(EngineError):
    """More requests wait than `max_queued` allows. Try again later."""

    code = "server_overloaded"

    def __init__(self, *, waiting: int) -> None:
        super().__init__(f"{waiting} requests are waiting already. Try again in a moment.")
        self.waiting = waiting


class RequestAborted(EngineError):
    """The request was aborted before it finished."""

    code = "request_aborted"


class EngineClosed(EngineError):
    """The engine was closed, or its worker failed."""

    code = "engine_closed"


class ModelNotFound(EngineError):
    """No such model here; the message lists the known ones and the command that fetches one."""

    code = "model_not_found"

    def __init__(self, name: str, *, known: Sequence[str] = (), hint: str = "") -> None:
        listed = ", ".join(known) or "none"
        super().__init__(
            f"The model {name!r} does not exist. Known models: {listed}. {hint}".rstrip()
        )
        self.name = name
        self.known = tuple(known)


class RankFailed(EngineError):
    """One of the processes of a tensor-parallel engine died, hung or failed; the engine is over.

    `rank` names it.
    """

    code = "rank_failed"

    def __init__(self, message: str, *, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class UnsupportedModel(EngineError):
    """The model's files were found but cannot be run: architecture, format or remote code."""

    code = "unsupported_model"


class PullFailed(EngineError):
    """Fetching or converting a model failed; nothing half-done was left behind."""

    code = "pull_failed"
