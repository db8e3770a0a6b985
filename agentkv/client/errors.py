"""What can go wrong with a call, the same in process and over HTTP.

Each error is an `AgentKVError` and, where LangChain's core knows the condition, its class too
(`ContextOverflowError`, `ModelRateLimitError`, ...), so that its retries and fallbacks act on it.
Cores before 1.6 have no such classes; there a plain exception stands in. Messages never hold a key,
and no raw response is attached: tracers copy those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkv.engine import errors as engine_errors

if TYPE_CHECKING:
    from langchain_core.exceptions import (
        ContextOverflowError,
        ModelAPIError,
        ModelAuthenticationError,
        ModelConnectionError,
        ModelInvalidRequestError,
        ModelNotFoundError,
        ModelPermissionDeniedError,
        ModelRateLimitError,
        ModelTimeoutError,
    )
else:
    try:
        from langchain_core import exceptions as _core
    except ImportError:
        _core = None

    def _base(name: str, *, retryable: bool = False) -> type[Exception]:
        found = getattr(_core, name, None)
        return found or type(name, (Exception,), {"is_retryable": retryable})

    ContextOverflowError = _base("ContextOverflowError")
    ModelAPIError = _base("ModelAPIError", retryable=True)
    ModelAuthenticationError = _base("ModelAuthenticationError")
    ModelConnectionError = _base("ModelConnectionError", retryable=True)
    ModelInvalidRequestError = _base("ModelInvalidRequestError")
    ModelNotFoundError = _base("ModelNotFoundError")
    ModelPermissionDeniedError = _base("ModelPermissionDeniedError")
    ModelRateLimitError = _base("ModelRateLimitError", retryable=True)
    ModelTimeoutError = _base("ModelTimeoutError", retryable=True)


class AgentKVError(Exception):
    """Base of every error that a call through agentkv raises on purpose.

    `code` is the string that the server puts into `error.code`; `status` the HTTP status, if there
    was one; `retry_after` how many seconds the server asked to wait.
    """

    code: str = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.status = status
        self.retry_after = retry_after


class InvalidCall(AgentKVError, ModelInvalidRequestError):
    """The request is wrong; `param` says where."""

    code = "invalid_value"
    param: str | None = None


class NotSupported(InvalidCall, NotImplementedError):
    """What was asked for is not offered (yet), and is not imitated silently."""

    code = "unsupported_parameter"


class ContextOverflow(AgentKVError, ContextOverflowError):
    """Prompt plus completion does not fit the context window of `limit` tokens."""

    code = "context_length_exceeded"
    limit: int | None = None
    prompt_tokens: int | None = None


class UnknownModel(AgentKVError, ModelNotFoundError):
    """No such model here or on the server."""

    code = "model_not_found"


class AuthenticationFailed(AgentKVError, ModelAuthenticationError):
    """The server wants a key, or another one (401)."""

    code = "invalid_api_key"


class PermissionDenied(AgentKVError, ModelPermissionDeniedError):
    """The key may not do this (403)."""

    code = "permission_denied"


class Overloaded(AgentKVError, ModelRateLimitError):
    """Too many requests wait already (429, or 503 with that code). Try again later."""

    code = "server_overloaded"


class EngineUnavailable(AgentKVError, ModelConnectionError):
    """The server cannot be reached or went away, or the engine is closed."""

    code = "engine_unavailable"


class EngineFailed(AgentKVError, ModelAPIError):
    """The engine failed while it handled the request (5xx)."""

    code = "internal_error"


class CallTimeout(AgentKVError, ModelTimeoutError):
    """A limit of `Timeouts` ran out; `phase` is `connect`, `first_token`, `chunk` or `total`."""

    code = "timeout"

    def __init__(self, phase: str, seconds: float | None) -> None:
        spent = f" within {seconds:g} s" if seconds is not None else ""
        what = {
            "connect": f"no connection{spent}",
            "first_token": f"no token{spent}",
            "chunk": f"the stream stood still: nothing{spent}",
            "total": f"the call did not end{spent}",
        }.get(phase, f"nothing{spent}")
        super().__init__(f"{what[0].upper()}{what[1:]} ({phase} timeout).")
        self.phase = phase


class Aborted(AgentKVError):
    """The request was aborted before it finished."""

    code = "request_aborted"


def from_engine(error: BaseException) -> BaseException:
    """The error of this file for one that the in-process engine raised; others as they are."""
    text = str(error)
    match error:
        case engine_errors.InvalidRequest():
            wrong = InvalidCall(text)
            wrong.param = error.param
            return wrong
        case engine_errors.ContextLengthExceeded():
            return _overflow(text, error.limit, error.prompt_tokens)
        case engine_errors.PoolTooSmall():
            return InvalidCall(text, code=error.code)
        case engine_errors.QueueFull():
            return Overloaded(text)
        case engine_errors.RequestAborted():
            return Aborted(text)
        case engine_errors.EngineClosed():
            return EngineUnavailable(text, code=error.code)
        case engine_errors.ModelNotFound():
            return UnknownModel(text)
        case engine_errors.EngineError():
            return EngineFailed(text, code=error.code)
        case TimeoutError():
            return CallTimeout("total", None)
        case _:
            return error


def from_status(
    status: int, body: object, *, retry_after: float | None = None, url: str = ""
) -> AgentKVError:
    """The error for an HTTP reply of `status` whose decoded body is `body`."""
    error = _error_of(body)
    code = error.get("code")
    code = code if isinstance(code, str) else None
    text = str(error.get("message") or f"{url or 'The server'} answered with status {status}.")
    if code == ContextOverflow.code or _says_overflow(status, error, text):
        return _overflow(text, error.get("n_ctx"), error.get("n_prompt_tokens"), status)
    if code == Aborted.code:
        return Aborted(text, status=status)
    if status == 429 or code == Overloaded.code:
        return Overloaded(text, code=code, status=status, retry_after=retry_after)
    if status in (408, 504):
        timeout = CallTimeout("total", None)
        timeout.status = status
        return timeout
    if status in (502, 503):
        return EngineUnavailable(text, code=code, status=status, retry_after=retry_after)
    if status >= 500:
        return EngineFailed(text, code=code, status=status, retry_after=retry_after)
    if status == 401:
        return AuthenticationFailed(text, code=code, status=status)
    if status == 403:
        return PermissionDenied(text, code=code, status=status)
    if status == 404:
        return UnknownModel(text, code=code, status=status)
    kind = NotSupported if code == NotSupported.code else InvalidCall
    wrong = kind(text, code=code, status=status)
    param = error.get("param")
    wrong.param = param if isinstance(param, str) else None
    return wrong


def _error_of(body: object) -> dict[str, Any]:
    """The error in a body: an object under `error`, a text there, or the body itself (SGLang, and
    vLLM before 0.10)."""
    if not isinstance(body, dict):
        return {}
    error = body.get("error")
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {**body, "message": error}
    said = body.get("message") or body.get("detail")
    return {**body, "message": said if isinstance(said, str) else None}


_OVERFLOWS = (
    "maximum context length",  # OpenAI, vLLM
    "longer than the model's context length",  # SGLang
    "exceeds the available context size",  # llama.cpp
    "prompt is too long",  # Anthropic's, behind a gateway
)


def _says_overflow(status: int, error: dict[str, Any], text: str) -> bool:
    """Whether a server without a code for it says that the prompt does not fit."""
    if status not in (400, 413, 422, 500):
        return False
    said = text.lower()
    return error.get("type") == "exceed_context_size_error" or any(o in said for o in _OVERFLOWS)


def _overflow(
    text: str, limit: object, prompt_tokens: object, status: int | None = None
) -> ContextOverflow:
    out = ContextOverflow(text, status=status)
    out.limit = limit if isinstance(limit, int) else None
    out.prompt_tokens = prompt_tokens if isinstance(prompt_tokens, int) else None
    return out


def retryable(error: BaseException) -> bool:
    """Whether the same request may succeed if it is sent again.

    A timeout is not: the server may still be at work, and asking again doubles that; only a
    connection that never came up may be tried again.
    """
    if isinstance(error, CallTimeout):
        return error.phase == "connect"
    return bool(getattr(error, "is_retryable", False))
