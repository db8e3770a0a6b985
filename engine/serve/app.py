"""The ASGI application: which path leads where, and what lies in between."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentkv.engine.errors import EngineError
from agentkv.engine.serve import (
    admin,
    cache,
    chat,
    completions,
    dashboard,
    generate,
    health,
    info,
    metrics,
    models,
    tokens,
)
from agentkv.engine.serve.config import ServeConfig
from agentkv.engine.serve.disconnect import CancelOnDisconnect
from agentkv.engine.serve.errors import ApiError, as_api_error
from agentkv.engine.serve.middleware import Gate, Identify, Limits
from agentkv.engine.serve.service import Service
from agentkv.engine.serve.wire import error_reply

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine

log = logging.getLogger(__name__)


def create_app(engine: Engine | None, config: ServeConfig | None = None) -> Starlette:
    """The application that serves `engine`.

    With `engine=None` it answers `/health` and says "loading" elsewhere, until an engine is given
    to `app.state.service.attach`. The caller owns the engine, and closes it.
    """
    config = config or ServeConfig()
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat.chat_completions, methods=["POST"]),
            Route("/v1/completions", completions.completions, methods=["POST"]),
            Route("/v1/models", models.models, methods=["GET"]),
            Route("/v1/models/{name:path}", models.model, methods=["GET"]),
            Route("/generate", generate.generate, methods=["POST"]),
            Route("/tokenize", tokens.tokenize, methods=["POST"]),
            Route("/detokenize", tokens.detokenize, methods=["POST"]),
            Route("/apply-template", tokens.apply_template, methods=["POST"]),
            Route("/server_info", info.server_info, methods=["GET"]),
            Route("/get_server_info", info.server_info, methods=["GET"]),
            Route("/model_info", info.model_info, methods=["GET"]),
            Route("/get_model_info", info.model_info, methods=["GET"]),
            Route("/flush_cache", admin.flush_cache, methods=["POST"]),
            Route("/abort_request", admin.abort_request, methods=["POST"]),
            Route("/agentkv/explain/{request_id}", admin.explain, methods=["GET"]),
            Route("/", dashboard.page, methods=["GET"]),
            Route("/agentkv/calls", dashboard.calls, methods=["GET"]),
            Route("/agentkv/cache/stats", cache.stats, methods=["GET"]),
            Route("/agentkv/cache/tree", cache.tree, methods=["GET"]),
            Route("/agentkv/cache/nodes/{node_id}", cache.node, methods=["GET"]),
            Route("/agentkv/cache/pins", cache.pins, methods=["GET"]),
            Route("/agentkv/cache/pin", cache.pin, methods=["POST"]),
            Route("/agentkv/cache/unpin", cache.unpin, methods=["POST"]),
            Route("/agentkv/cache/hint", cache.hint, methods=["POST"]),
            Route("/agentkv/cache/save", cache.save, methods=["POST"]),
            Route("/agentkv/cache/flush", admin.flush_cache, methods=["POST"]),
            Route("/health", health.health, methods=["GET"]),
            Route("/ready", health.ready, methods=["GET"]),
            Route("/health_generate", health.health_generate, methods=["GET"]),
            Route("/metrics", metrics.metrics, methods=["GET"]),
        ],
        middleware=[
            Middleware(Identify),
            Middleware(Gate, config=config),
            Middleware(Limits, config=config),
            Middleware(CancelOnDisconnect),
        ],
        exception_handlers={ApiError: _on_error, EngineError: _on_error, HTTPException: _on_error},
    )
    app.router.redirect_slashes = False
    app.state.service = Service(engine, config)
    return app


async def _on_error(request: Request, error: Exception) -> Response:
    reply = as_api_error(error)
    if reply.status >= 500 and reply.code == "internal_error":
        log.error("%s: %s", request.state.request_id, error, exc_info=error)
    return error_reply(reply)
