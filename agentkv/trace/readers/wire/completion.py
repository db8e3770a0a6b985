"""Text completions: one `prompt`."""

from __future__ import annotations

from agentkv.trace.call import Part, Piece
from agentkv.trace.readers.fields import Record, pick, text
from agentkv.trace.readers.wire.prompt import Prompt, model_of, provider_of, settings_of

NAME = "completion"


def matches(body: Record, url: str = "") -> bool:
    given = body.get("prompt")
    if isinstance(given, list):
        return len(given) == 1 and isinstance(given[0], str)
    return isinstance(given, str) and (
        "model" in body or "max_tokens" in body or "/completions" in url or len(body) <= 3
    )


def prompt(body: Record, url: str = "") -> Prompt:
    given = body["prompt"]
    shown = given[0] if isinstance(given, list) else given
    model = model_of(body)
    parts = (Part("prompt", "question", None, (Piece("text", shown),)),) if shown else ()
    salt = text(pick(body, "cache_salt", "extra_key"))
    return Prompt(parts, model, provider_of(url, model), settings_of(body), salt)
