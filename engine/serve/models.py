"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.serve.service import service_of
from agentkv.engine.serve.wire import JSONReply

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine


async def models(request: Request) -> Response:
    """The one model of this server, as a list."""
    return JSONReply({"object": "list", "data": [card(service_of(request).engine)]})


async def model(request: Request) -> Response:
    """One model. Ids may hold slashes. Raises 404 for any other."""
    service = service_of(request)
    service.check_model(request.path_params["name"])
    return JSONReply(card(service.engine))


def card(engine: Engine) -> dict[str, Any]:
    """The context window goes out under every name that clients look for."""
    return {
        "id": engine.model_name,
        "object": "model",
        "created": engine.created,
        "owned_by": "agentkv",
        "max_model_len": engine.max_model_len,
        "context_length": engine.max_model_len,
        "meta": {
            "n_ctx": engine.max_model_len,
            "n_ctx_train": engine.max_model_len,
            "n_vocab": engine.vocab_size,
        },
    }
