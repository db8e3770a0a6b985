"""`/agentkv/cache/*`: the cache as it is, and what a client knows of its future.

    GET  stats, tree, nodes/{id}, pins
    POST pin, unpin, hint, save, flush

A client sees and touches what was computed under its own key only, and text only of that. Everything
that changes something is a POST: a link must not.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.engine import SaltFilter
from agentkv.engine.keep import Pinned
from agentkv.engine.kv.pins import PAUSE_SECONDS, PIN_SECONDS
from agentkv.engine.serve.body import read
from agentkv.engine.serve.conversation import render
from agentkv.engine.serve.errors import ApiError, invalid
from agentkv.engine.serve.params import check_session, salt_of
from agentkv.engine.serve.prompts import read_prompts
from agentkv.engine.serve.protocol import HintRequest, PinRequest, UnpinRequest
from agentkv.engine.serve.service import service_of
from agentkv.engine.serve.wire import JSONReply

SCHEMA = 1
MOST_NODES = 10_000
MOST_TEXT = 4000
"""Characters of a node's text at most."""

_POOL = (
    "num_requests_running",
    "num_requests_waiting",
    "requests_total",
    "generation_tokens_total",
    "pool_tokens",
    "free_tokens",
    "evictable_tokens",
    "locked_tokens",
    "private_tokens",
    "token_usage",
    "pinned_tokens",
    "paused_tokens",
    "evicted_tokens_total",
    "decayed_pins_total",
    "prompt_tokens_total",
    "cached_tokens_total",
    "cache_hit_rate",
    "tiers",
    "hints_total",
)


async def stats(request: Request) -> Response:
    """Sizes, and what moved, by tier. Tokens, unless a name says otherwise."""
    engine = service_of(request).engine
    found = await asyncio.to_thread(engine.stats)
    return JSONReply(
        {
            "schema": SCHEMA,
            "model": engine.model_name,
            "page_size": engine.page_size,
            "kv_dtype": engine.kv_dtype_name,
            "eviction": engine.config.eviction,
            **{name: found[name] for name in _POOL},
        }
    )


async def tree(request: Request) -> Response:
    """The radix tree: `limit` nodes at most (2000), `depth` levels at most. The largest first."""
    engine = service_of(request).engine
    limit = _number(request, "limit", 2000, MOST_NODES)
    depth = _number(request, "depth", 0, 1_000_000) or None
    of = _mine(request.state.tenant)
    found = await asyncio.to_thread(lambda: engine.tree(of=of, most=limit, depth=depth))
    return JSONReply({"schema": SCHEMA, "page_size": engine.page_size, **found.to_dict()})


async def node(request: Request) -> Response:
    """One node, by its id or the beginning of it; `text=1` adds what its tokens say."""
    engine = service_of(request).engine
    wanted = request.path_params["node_id"]
    of = _mine(request.state.tenant)
    found = await asyncio.to_thread(lambda: engine.node(wanted, of=of)) if wanted else None
    if found is None:
        raise ApiError(
            404, "node_not_found", f"No node, or more than one, has an id that begins {wanted!r}."
        )
    shown, ids, children = found
    out: dict[str, Any] = {"schema": SCHEMA, **shown.to_dict(), "children": children}
    if request.query_params.get("text") in ("1", "true"):
        text = await asyncio.to_thread(engine.tokenizer.decode, ids.tolist(), skip_special=False)
        out["text"] = text[:MOST_TEXT]
        out["text_cut"] = len(text) > MOST_TEXT
    return JSONReply(out)


async def pins(request: Request) -> Response:
    """The pins of the caller's key, oldest first."""
    engine = service_of(request).engine
    of = _mine(request.state.tenant)
    found = await asyncio.to_thread(lambda: engine.pins(of=of))
    return JSONReply({"schema": SCHEMA, "pins": [_pin(p) for p in found]})


async def pin(request: Request) -> Response:
    """Keep a prefix for `ttl` seconds: `messages` (with `tools`) or `prompt`; computed if need be.

    Messages are rendered without the opening of an answer, so that any answer may follow them.
    """
    service = service_of(request)
    engine = service.accept()
    body = await read(request, PinRequest)
    wanted = body.value
    if (wanted.messages is None) == (wanted.prompt is None):
        raise invalid(
            "Give either `messages` or `prompt`.",
            param="messages",
            code="missing_required_parameter",
        )
    salt = salt_of(wanted.cache_salt, request.state.tenant)
    if wanted.messages is not None:
        prompt: Any = await render(
            service,
            wanted.messages,
            wanted.tools,
            add_generation_prompt=False,
            continue_final_message=False,
            template_kwargs=wanted.chat_template_kwargs,
            salt=salt,
        )
    else:
        prompts = await read_prompts(service, wanted.prompt or [])
        if len(prompts) != 1:
            raise invalid("`prompt` takes one prompt here.", param="prompt")
        prompt = prompts[0]
    ttl = PIN_SECONDS if wanted.ttl is None else wanted.ttl
    found = await asyncio.to_thread(lambda: engine.pin(prompt, ttl=ttl, salt=salt))
    return JSONReply({"schema": SCHEMA, **_pin(found)}, headers=body.headers)


async def unpin(request: Request) -> Response:
    """End a pin."""
    engine = service_of(request).engine
    body = await read(request, UnpinRequest)
    of = _mine(request.state.tenant)
    done = await asyncio.to_thread(lambda: engine.unpin(body.value.pin, of=of))
    if not done:
        raise ApiError(404, "pin_not_found", f"There is no pin {body.value.pin[:128]!r}.")
    return JSONReply({"schema": SCHEMA, "unpinned": body.value.pin}, headers=body.headers)


async def hint(request: Request) -> Response:
    """`pause`, `release` or `prefetch` a session. `tokens`: how many it concerned, 0 for none."""
    engine = service_of(request).engine
    body = await read(request, HintRequest)
    wanted = body.value
    session = check_session(wanted.session)
    if not session:
        raise invalid("`session` is empty.", param="session")
    salt = salt_of(wanted.cache_salt, request.state.tenant)
    if wanted.action == "pause":
        ttl = PAUSE_SECONDS if wanted.ttl is None else wanted.ttl
        tokens = await asyncio.to_thread(lambda: engine.pause(session, ttl=ttl, salt=salt))
    elif wanted.action == "release":
        tokens = await asyncio.to_thread(lambda: engine.release(session, salt=salt))
    else:
        tokens = await asyncio.to_thread(lambda: engine.prefetch(session, salt=salt))
    return JSONReply(
        {"schema": SCHEMA, "session": session, "action": wanted.action, "tokens": tokens},
        headers=body.headers,
    )


async def save(request: Request) -> Response:
    """Start to write to disk what is not there yet."""
    engine = service_of(request).engine
    return JSONReply({"schema": SCHEMA, "prefixes": await asyncio.to_thread(engine.save)})


def _mine(tenant: str | None) -> SaltFilter | None:
    """What a caller may see: everything, where keys are not told apart."""
    if tenant is None:
        return None

    def accepts(salt: str | None) -> bool:
        return salt is not None and json.loads(salt)[0] == tenant

    return accepts


def _pin(found: Pinned) -> dict[str, Any]:
    return {"pin": found.id, "tokens": found.tokens, "expires_in": round(found.seconds, 1)}


def _number(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    # Its length first: Python refuses to read numbers of thousands of digits.
    if not text.isdecimal() or len(text) > len(str(most)) or not 0 < int(text) <= most:
        raise invalid(f"`{name}` must be a whole number from 1 to {most}.", param=name)
    return int(text)
