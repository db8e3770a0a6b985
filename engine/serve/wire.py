"""JSON on the wire: strict on the way in, safe for line readers on the way out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from agentkv.engine.serve.errors import ApiError, invalid

MAX_DEPTH = 64
_encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """`value` as UTF-8 JSON on one line.

    U+0085, U+2028 and U+2029 end a line for many readers of server-sent events, so they go out
    as escapes (control characters always do). Their UTF-8 bytes occur nowhere else in JSON text.
    """
    return (
        _encoder.encode(value)
        .replace(b"\xc2\x85", b"\\u0085")
        .replace(b"\xe2\x80\xa8", b"\\u2028")
        .replace(b"\xe2\x80\xa9", b"\\u2029")
    )


class JSONReply(Response):
    """A JSON response."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


def error_reply(error: ApiError) -> JSONReply:
    """The response for `error`."""
    return JSONReply(error.body(), status_code=error.status, headers=error.headers)


def decode(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`.

    Raises 400 for text that is not JSON, for NaN and infinities, for lone surrogates (naming the
    field), for anything but an object, and for nesting beyond `MAX_DEPTH`.
    """
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise too_deep() from None
    except msgspec.DecodeError as error:
        raise _diagnose(body, str(error)) from None
    if not isinstance(value, dict):
        raise invalid("The body must be a JSON object.", code="invalid_json")
    for name, part in value.items():
        _check_depth(part, name)
    return value


def too_deep(param: str | None = None) -> ApiError:
    """400 for nesting beyond the limit."""
    return invalid(f"JSON may nest at most {MAX_DEPTH} levels.", param=param, code="json_too_deep")


def _check_depth(value: Any, param: str) -> None:
    level = [value]
    depth = 1
    while True:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        depth += 1
        if depth > MAX_DEPTH:
            raise too_deep(param)
        level = below


def _diagnose(body: bytes, reason: str) -> ApiError:
    """Why `body` was refused. Runs on bad input only, with the forgiving parser of the library."""

    def refuse_constant(text: str) -> Any:
        raise ValueError(f"{text} is not a JSON number")

    try:
        value = json.loads(body, parse_constant=refuse_constant)
    except RecursionError:
        return too_deep()
    except UnicodeDecodeError:
        return invalid("The body is not valid UTF-8.", code="invalid_json")
    except ValueError as error:
        return invalid(f"The body is not valid JSON: {error}.", code="invalid_json")
    path = _find_surrogate(value, "")
    if path is not None:
        where = path or "body"
        return invalid(
            f"`{where}` holds a lone surrogate, which is no character. Send the pair, or U+FFFD.",
            param=where,
            code="invalid_unicode",
        )
    return invalid(f"The body is not valid JSON: {reason}.", code="invalid_json")


def _find_surrogate(root: Any, name: str) -> str | None:
    """The path of the first string under `root` that cannot be encoded as UTF-8."""
    stack: list[tuple[str, Any]] = [(name, root)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, str):
            if _is_broken(value):
                return path
        elif isinstance(value, Mapping):
            for key, item in reversed(list(value.items())):
                if _is_broken(key):
                    return path
                stack.append((f"{path}.{key}" if path else key, item))
        elif isinstance(value, list):
            for i in range(len(value) - 1, -1, -1):
                stack.append((f"{path}[{i}]", value[i]))
    return None


def _is_broken(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
