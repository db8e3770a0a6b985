"""What `agentkv explain` does with its options: two requests, one of a log, or one of a server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.trace.explain import Explanation, NoSuchRequest, explain, explain_id, load
from agentkv.trace.options import FAILED, OK, Common, Unavailable, WrongUsage, unreadable
from agentkv.trace.output.console import console, write_json
from agentkv.trace.readers import LogError
from agentkv.trace.render import Renderer

KEY_VARIABLE = "AGENTKV_API_KEY"
_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    requests: tuple[str, ...] = ()
    request_id: str | None = None
    url: str = "http://127.0.0.1:8080"
    tokenizer: Path | None = None
    template: Path | None = None
    format: str | None = None
    redact: bool = False
    json: bool = False


def run(options: Options) -> int:
    """Explain, and give the exit status. Raises WrongUsage, Unavailable."""
    if options.request_id is None and len(options.requests) != 2:
        raise WrongUsage(
            "give two requests (agentkv explain A.json B.json), or --request-id ID and the logs "
            "to look in, or --request-id ID alone to ask a server."
        )
    if options.request_id is not None and not options.requests:
        return _of_server(options, options.request_id)
    common = Common(
        logs=options.requests,
        format=options.format,
        tokenizer=options.tokenizer,
        template=options.template,
    )
    try:
        found = _found(options, common, common.renderer())
    except NoSuchRequest as error:
        raise WrongUsage(str(error)) from None
    except LogError as error:
        raise unreadable(error) from None
    if options.redact:
        from agentkv.trace.output.redacted import explanation_without_text

        found = explanation_without_text(found)
    if options.json:
        write_json(found.to_dict())
    else:
        from agentkv.trace.output import explain as output

        output.write(found, console())
    return OK if found.healthy else FAILED


def _found(options: Options, common: Common, renderer: Renderer) -> Explanation:
    if options.request_id is not None:
        with common.open() as logs:
            return explain_id(logs(), options.request_id, renderer)
    before, after = options.requests
    return explain(
        load(before, format=options.format), load(after, format=options.format), renderer
    )


def _of_server(options: Options, request_id: str) -> int:
    """What a running `agentkv serve` says of one of its own calls."""
    for name, given in (
        ("--tokenizer", options.tokenizer),
        ("--template", options.template),
        ("--format", options.format),
    ):
        if given is not None:
            raise WrongUsage(f"{name} is for requests in files; the server has its own.")
    found = ask(options.url, request_id, os.environ.get(KEY_VARIABLE))
    if options.redact:
        found = without_text(found)
    from agentkv.trace.output import explain as output

    if options.json:
        write_json(found)
    else:
        output.write_reply(found, console())
    calls = found.get("calls") or [found]
    reasons = [(c.get("miss") or {}).get("reason") for c in calls if isinstance(c, dict)]
    return OK if all(reason in output.HEALTHY for reason in reasons) else FAILED


def ask(url: str, request_id: str, key: str | None = None) -> dict[str, Any]:
    """`GET /agentkv/explain/{request_id}`. Raises Unavailable when no server answers, WrongUsage
    when it knows no such request."""
    from urllib.parse import quote

    import httpx

    base = url.rstrip("/").removesuffix("/v1")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        reply = httpx.get(
            f"{base}/agentkv/explain/{quote(request_id, safe='')}",
            headers=headers,
            timeout=_SECONDS,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unavailable(
            f"no answer from {base}: {error or type(error).__name__}. Is `agentkv serve` running "
            "there? --url names another place."
        ) from None
    if reply.status_code == 404:
        raise WrongUsage(
            f"the server at {base} knows no request {request_id}; it keeps those of a while ago only."
        )
    if reply.status_code in (401, 403):
        raise WrongUsage(f"the server at {base} wants a key: set {KEY_VARIABLE}.")
    try:
        value = reply.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise Unavailable(f"{base} gave no answer that could be read: {error}.") from None
    if not isinstance(value, dict):
        raise Unavailable(f"{base} gave no answer that could be read: it is no JSON object.")
    return value


def without_text(value: Any) -> Any:
    """A server's answer without the prompt's text."""
    if isinstance(value, dict):
        return {
            k: None if k in _TEXTS and isinstance(v, str) else without_text(v)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [without_text(v) for v in value]
    return value


_TEXTS = {"was", "now", "was_token", "now_token", "before", "after", "context", "detail", "text"}
