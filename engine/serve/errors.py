"""Errors on the wire: OpenAI's shape, with string codes, and nothing of the inside in a 5xx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException

from agentkv.engine import errors as engine_errors

CODE_LIMIT = 1000
"""Longest message that is sent back; a message may quote what the client sent."""

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}


class ApiError(Exception):
    """One reply that is an error. `extra` adds fields to the `error` object."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})

    def body(self) -> dict[str, Any]:
        """The JSON object that goes out."""
        text = self.message
        if len(text) > CODE_LIMIT:
            text = text[: CODE_LIMIT - 1] + "…"
        kind = _TYPES.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        error = {
            "message": text,
            "type": kind,
            "param": self.param,
            "code": self.code,
            **self.extra,
        }
        return {"error": error}


def invalid(message: str, *, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """400: the request is wrong; `param` says where."""
    return ApiError(400, code, message, param=param)


def unsupported(param: str, why: str) -> ApiError:
    """400: a field that asks for something this version does not do, and must not ignore."""
    return ApiError(400, "unsupported_parameter", f"`{param}` is not supported: {why}", param=param)


def context_length_exceeded(message: str, limit: int, prompt_tokens: int | None) -> ApiError:
    """400 for a prompt that does not fit, with both numbers.

    Clients look for the code inside the *text*: their exceptions show nothing else.
    """
    code = "context_length_exceeded"
    extra = {"n_prompt_tokens": prompt_tokens, "n_ctx": limit}
    return ApiError(400, code, f"{message} ({code})", param="messages", extra=extra)


def model_not_found(name: str, known: Sequence[str]) -> ApiError:
    """404, with the ids that exist."""
    return ApiError(
        404,
        "model_not_found",
        f"The model {name!r} does not exist. This server has: {', '.join(known) or 'none'}.",
        param="model",
    )


def not_ready(phase: str) -> ApiError:
    """503 while the model loads, while the server drains, or when loading failed."""
    text = {
        "loading": "The model is still loading. Try again in a moment.",
        "draining": "The server is shutting down and takes no new requests.",
        "failed": "The engine could not start, or has stopped. The server's log says why.",
    }[phase]
    return ApiError(503, f"server_{phase}", text, headers={"retry-after": "2"})


def internal() -> ApiError:
    """500 for a bug. The log has the details; the client gets none of them."""
    return ApiError(
        500, "internal_error", "The server failed while handling this request. Its log says why."
    )


def as_api_error(error: BaseException) -> ApiError:
    """The reply for anything that a handler raised."""
    match error:
        case ApiError():
            return error
        case engine_errors.InvalidRequest():
            return invalid(str(error), param=error.param, code=error.code)
        case engine_errors.ContextLengthExceeded():
            return context_length_exceeded(str(error), error.limit, error.prompt_tokens)
        case engine_errors.PoolTooSmall():
            return ApiError(
                400,
                error.code,
                str(error),
                extra={"needed_pages": error.needed, "total_pages": error.total},
            )
        case engine_errors.QueueFull():
            return ApiError(503, error.code, str(error), headers={"retry-after": "1"})
        case engine_errors.RequestAborted():
            # The client asked for this, so its SDK must not try again by itself.
            return ApiError(400, error.code, str(error), headers={"x-should-retry": "false"})
        case engine_errors.ModelNotFound():
            return model_not_found(error.name, error.known)
        case engine_errors.EngineClosed():
            return ApiError(503, error.code, "The engine has stopped. The server's log says why.")
        case HTTPException():
            return _from_http(error)
        case _:
            return internal()


def _from_http(error: HTTPException) -> ApiError:
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return ApiError(
            404, "route_not_found", "No such route. See GET /v1/models and the documentation."
        )
    if error.status_code == 405:
        allow = headers.get("Allow", "another method")
        return ApiError(405, "method_not_allowed", f"This route takes {allow}.", headers=headers)
    return ApiError(error.status_code, "http_error", str(error.detail), headers=headers)
