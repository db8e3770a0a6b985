"""Liveness, readiness, and proof of life."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.serve.errors import ApiError, not_ready
from agentkv.engine.serve.job import Call, Job
from agentkv.engine.serve.service import service_of
from agentkv.engine.serve.wire import JSONReply
from agentkv.engine.types import SamplingParams, as_ids

PROBE_SECONDS = 30.0


async def health(request: Request) -> Response:
    """200 as long as this process is of use. Touches neither the model nor the queue.

    503 once the engine's worker has died: only a restart helps.
    """
    service = service_of(request)
    if service.phase == "failed" or (service.has_engine and not service.engine.alive):
        raise not_ready("failed")
    return JSONReply({"status": "ok"})


async def ready(request: Request) -> Response:
    """200 when a request would be taken; 503 while loading or draining."""
    service = service_of(request)
    if service.phase != "ready":
        raise not_ready(service.phase)
    return JSONReply({"status": "ready"})


async def health_generate(request: Request) -> Response:
    """200 once the model has made a token for this very request; 503 after 30 s without one."""
    service = service_of(request)
    engine = service.accept()
    call = Call(
        prompt=as_ids([0]),
        params=SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True),
        salt="agentkv:health",
    )
    job = Job(service, engine, [call], request.state.request_id)
    try:
        outputs = await asyncio.wait_for(job.outputs(), PROBE_SECONDS)
    except TimeoutError:
        raise ApiError(
            503,
            "health_timeout",
            f"The model made no token within {PROBE_SECONDS:.0f} s.",
            headers={"retry-after": "5"},
        ) from None
    return JSONReply({"status": "ok", "ttft_ms": round(outputs[0].times.ttft, 3)})
