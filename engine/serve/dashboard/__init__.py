"""`GET /`: a page that shows the cache as it lives, and `GET /agentkv/calls`, the calls that it lists.

The page is one answer: no file of another host, no script but its own (the policy in its header names
its digest). It holds nothing of anybody's; what it shows it asks for with the key that its reader types
in, where the server has keys, and so sees what that key may see.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.serve.errors import invalid
from agentkv.engine.serve.service import service_of
from agentkv.engine.serve.wire import JSONReply

SCHEMA = 1
LIMIT = 50
MOST = 1024


async def page(request: Request) -> Response:
    """The page, which is the same for everybody."""
    body, policy = _page()
    return Response(
        body,
        media_type="text/html",
        headers={
            "content-security-policy": policy,
            "cache-control": "no-cache",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        },
    )


async def calls(request: Request) -> Response:
    """The last finished calls of the caller's key, newest first: `limit` at most (50)."""
    given = request.query_params.get("limit", str(LIMIT))
    plain = given.isascii() and given.isdecimal() and len(given) < 10
    if not plain or not 1 <= int(given) <= MOST:
        raise invalid(f"`limit` must be a number from 1 to {MOST}.", param="limit")
    verdicts = service_of(request).verdicts
    return JSONReply({"schema": SCHEMA, "calls": verdicts.latest(request.state.tenant, int(given))})


@functools.cache
def _page() -> tuple[bytes, str]:
    """The whole page, and the policy that lets its own script and style run, and nothing else."""
    files = resources.files(__package__)
    style, script = (files.joinpath(f"page.{kind}").read_bytes() for kind in ("css", "js"))
    body = files.joinpath("page.html").read_bytes()
    body = body.replace(b"/* style */", style).replace(b"/* script */", script)
    policy = (
        f"default-src 'none'; connect-src 'self'; style-src {_digest(style)}; "
        f"script-src {_digest(script)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return body, policy


def _digest(text: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"
