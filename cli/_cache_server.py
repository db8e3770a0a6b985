"""`agentkv cache` on a running server: the commands that need one, and those that take either."""

from __future__ import annotations

import json as stdjson
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli.main import REMOTE, USAGE, fail
from agentkv.cli.output import Json, print_json

if TYPE_CHECKING:
    from agentkv.client.cache import CacheServer

SCHEMA = 1

URL = Annotated[
    str, typer.Argument(metavar="[URL]", help="The server. AGENTKV_API_KEY is its key.")
]
HERE = "http://127.0.0.1:8080"


def is_server(where: str) -> bool:
    """Whether an argument is the URL of a server, and no directory."""
    return where.startswith(("http://", "https://"))


def add_to(app: typer.Typer) -> None:
    """Add the commands that are for servers only."""
    for command in (tree, pins, pin, unpin, flush, save):
        app.command()(command)


# -- commands that take a directory or a server; the directory's part is in cache.py


def stats(url: str, as_json: bool) -> None:
    def show(server: CacheServer) -> None:
        found = server.stats()
        _print(found, as_json, lambda text: text.stats_lines(found))

    _on(url, show)


def nodes(url: str, limit: int | None, as_json: bool) -> None:
    """`ls`: every node, in the order of the tree."""

    def show(server: CacheServer) -> None:
        found = server.tree(limit=limit or 10_000)
        _print(
            found, as_json, lambda text: (f"{n['start']:>8,} + {text.node_line(n)}" for n in found["nodes"])
        )  # fmt: skip

    _on(url, show)


def top(url: str, limit: int, as_json: bool) -> None:
    def show(server: CacheServer) -> None:
        found = server.tree(limit=10_000)
        order = sorted(found["nodes"], key=lambda n: (-n["shares"], -n["uses"], -n["tokens"]))
        found["nodes"] = order[:limit]
        _print(found, as_json, lambda text: text.top_lines(order, limit))

    _on(url, show)


def inspect(url: str, name: str, text: bool, as_json: bool) -> None:
    def show(server: CacheServer) -> None:
        found = server.node(name, text=text)

        def lines(_: Any) -> Any:
            for key, value in found.items():
                if key not in ("schema", "text", "text_cut"):
                    shown = "+".join(value) if isinstance(value, list) else value
                    yield f"{key:<14} {'-' if shown in (None, '') else shown}"
            if "text" in found:
                yield ""
                yield found["text"] + (" ..." if found["text_cut"] else "")

        _print(found, as_json, lines)

    _on(url, show)


# -- commands for servers


def tree(
    url: URL = HERE,
    depth: Annotated[
        int | None, typer.Option(min=1, help="Levels at most.", show_default="all")
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Nodes at most.")] = 200,
    json: Json = False,
) -> None:
    """The radix tree of a server: tokens, tiers, uses, what keeps them. No text."""

    def show(server: CacheServer) -> None:
        found = server.tree(limit=limit, depth=depth)
        _print(found, json, lambda text: text.tree_lines(found))

    _on(url, show)


def pins(url: URL = HERE, json: Json = False) -> None:
    """The pins of a server, oldest first."""

    def show(server: CacheServer) -> None:
        found = server.pins()
        _print({"schema": SCHEMA, "pins": found}, json, lambda text: text.pin_lines(found))

    _on(url, show)


def pin(
    file: Annotated[
        Path,
        typer.Argument(
            help="What to keep: JSON with `messages` (and `tools`), as in a chat request, or a text.",
            show_default=False,
        ),
    ],
    url: URL = HERE,
    ttl: Annotated[float, typer.Option(min=1, help="Seconds.")] = 3600,
    salt: Annotated[str | None, typer.Option(help="The cache_salt of the calls.")] = None,
    json: Json = False,
) -> None:
    """Keep the beginning of a conversation in a server's cache, computed now if need be."""
    body = _asked(file)

    def show(server: CacheServer) -> None:
        found = server.pin(**body, ttl=ttl, salt=salt)
        _print(found, json, lambda text: text.pin_lines([found]))

    _on(url, show, timeout=600.0)


def unpin(
    pin: Annotated[str, typer.Argument(help="Its id, as `pin` and `pins` print it.")],
    url: URL = HERE,
    json: Json = False,
) -> None:
    """End a pin of a server."""

    def show(server: CacheServer) -> None:
        found = server.unpin(pin)
        _print(found, json, lambda text: [f"{pin} is no longer pinned"])

    _on(url, show)


def flush(url: URL = HERE, json: Json = False) -> None:
    """Empty a server's pool and host memory. A disk cache stays: `purge` is for that."""

    def show(server: CacheServer) -> None:
        found = server.flush()
        tokens = found["flushed_tokens"]
        _print({"schema": SCHEMA, **found}, json, lambda text: [f"{tokens:,} tokens freed"])

    _on(url, show)


def save(url: URL = HERE, json: Json = False) -> None:
    """Have a server write to its disk cache what is not there yet."""

    def show(server: CacheServer) -> None:
        found = server.save()
        count = found["prefixes"]
        _print(found, json, lambda text: [f"{count:,} prefixes on their way to disk"])

    _on(url, show)


def _asked(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file} cannot be read: {error}", USAGE)
    try:
        found = stdjson.loads(text)
    except ValueError:
        return {"prompt": text}
    if isinstance(found, dict) and isinstance(found.get("messages"), list):
        return {"messages": found["messages"], "tools": found.get("tools")}
    fail(f"{file} is JSON without `messages`: give a chat request, or a plain text.", USAGE)


def _on(url: str, show: Callable[[CacheServer], None], *, timeout: float = 30.0) -> None:
    from agentkv.client.cache import CacheServer, CacheServerError

    if not is_server(url):
        fail(
            f"{url} is no URL: this command asks a running server, {HERE} if none is named.", USAGE
        )
    try:
        with CacheServer(url, timeout=timeout) as server:
            show(server)
    except CacheServerError as error:
        fail(str(error), USAGE if error.refused else REMOTE)


def _print(found: Any, as_json: bool, lines: Callable[[Any], Any]) -> None:
    if as_json:
        print_json(found)
        return
    from agentkv.client import cache_text

    for line in lines(cache_text):
        print(line)
