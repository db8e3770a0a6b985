"""`POST /flush_cache` and `POST /abort_request` (POST only: a link must not change anything), and
`GET /agentkv/explain/{request_id}`."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.serve.body import read
from agentkv.engine.serve.errors import ApiError, invalid
from agentkv.engine.serve.protocol import AbortRequest
from agentkv.engine.serve.service import service_of
from agentkv.engine.serve.wire import JSONReply


async def flush_cache(request: Request) -> Response:
    """Drop every cached prefix. Requests in flight keep what they use and go on."""
    freed = await asyncio.to_thread(service_of(request).engine.flush)
    return JSONReply({"success": True, "flushed_tokens": freed})


async def abort_request(request: Request) -> Response:
    """Abort the request whose `X-Request-Id` (or `rid`) is `rid`, or all of them: of the caller's key,
    where there are several."""
    service = service_of(request)
    body = await read(request, AbortRequest)
    wanted = body.value
    if not wanted.rid and not wanted.abort_all:
        raise invalid(
            "Give `rid`, or `abort_all: true`.", param="rid", code="missing_required_parameter"
        )
    which = None if wanted.abort_all else wanted.rid
    told = await asyncio.to_thread(service.abort, which, request.state.tenant)
    return JSONReply({"success": True, "aborted": told}, headers=body.headers)


async def explain(request: Request) -> Response:
    """What a finished call reused, and why not more. A client sees the calls of its own key only."""
    service = service_of(request)
    wanted = request.path_params["request_id"]
    found = service.verdicts.get(wanted, request.state.tenant)
    if found is None:
        mine = service.seen_by(request.state.tenant)
        running = any(ticket.request_id == wanted for ticket in mine)
        why = (
            "It is still running."
            if running
            else f"The last {service.verdicts.most} calls are kept, by their `X-Request-Id`."
        )
        raise ApiError(
            404, "request_not_found", f"No finished call {wanted[:128]!r} is known. {why}"
        )
    return JSONReply(found)
