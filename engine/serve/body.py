"""Reading a request: bytes to a struct, and the names of what was ignored."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request

from agentkv.engine.serve.errors import ApiError, invalid, unsupported
from agentkv.engine.serve.protocol import REFUSED, is_neutral
from agentkv.engine.serve.wire import decode, too_deep

T = TypeVar("T", bound=msgspec.Struct)
LARGE = 1 << 20
"""Bodies beyond this many bytes are parsed in a thread, so that streams keep flowing."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PATH = re.compile(r" - at `(?:key in )?\$?\.?([^`]*)`$")
MAX_IGNORED = 20


@dataclass(frozen=True, slots=True)
class Body(Generic[T]):
    """A request body. `ignored`: fields that the server does not know."""

    value: T
    ignored: tuple[str, ...]

    @property
    def headers(self) -> dict[str, str]:
        """The reply header that names the ignored fields, if any.

        Names come from the client, so only those that are safe inside a header are repeated.
        """
        names = [name for name in self.ignored if _PLAIN_NAME.fullmatch(name)][:MAX_IGNORED]
        return {"x-agentkv-ignored": ", ".join(names)} if names else {}


async def read(request: Request, kind: type[T]) -> Body[T]:
    """The body of `request` as `kind`. Raises 400 naming the field that is wrong."""
    raw = await request.body()
    if len(raw) > LARGE:
        return await asyncio.to_thread(parse, raw, kind)
    return parse(raw, kind)


def parse(raw: bytes, kind: type[T]) -> Body[T]:
    """`raw` as `kind`; see `read`."""
    fields = decode(raw or b"{}")
    # Not `msgspec.structs.fields`, which resolves every annotation again: a millisecond a request.
    known = kind.__struct_encode_fields__
    unknown = [name for name in fields if name not in known]
    for name in unknown:
        if name in REFUSED and not is_neutral(name, fields[name]):
            raise unsupported(name, REFUSED[name])
    return Body(convert(fields, kind), tuple(unknown))


def convert(value: Any, kind: type[T], prefix: str = "") -> T:
    """`value` (decoded JSON) as `kind`. Raises 400 naming the field, `prefix` before it."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error), prefix) from None
    except RecursionError:
        raise too_deep() from None


def _wrong_type(text: str, prefix: str) -> ApiError:
    found = _PATH.search(text)
    path = found.group(1) if found else ""
    missing = re.search(r"missing required field `([^`]*)`", text)
    if missing is not None:
        path = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return invalid(
            f"`{prefix}{path}` is required.", param=prefix + path, code="missing_required_parameter"
        )
    message = text[: found.start()] if found else text
    where = prefix + path or None
    said = f"`{where}`: {message}." if where else f"{message}."
    return invalid(said, param=where, code="invalid_type")
