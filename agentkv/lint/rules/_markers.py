"""What rules about cache markers share."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.target import Target, target
from agentkv.lint.template import Request

_BY_API = {"anthropic": "anthropic", "bedrock": "anthropic", "openai": "openai", "gemini": "gemini"}


def target_of(request: Request, context: Context) -> Target:
    """What a request's provider caches: by its API where that says it, else the target of the run."""
    model = (request.model or "").lower()
    if "claude" in model or "anthropic" in model:
        return target("anthropic")
    if request.api in _BY_API:
        return target(_BY_API[request.api])
    if model.startswith(("gpt-", "openai/", "o1", "o3", "o4")) and request.api == "litellm":
        return target("openai")
    return context.target


def markers(request: Request) -> int:
    """How many cache markers a request has."""
    parts = request.template.parts if request.template is not None else ()
    places = {m.start for m in request.markers} | {
        p.marker.start for p in parts if p.marker is not None
    }
    return len(places)
