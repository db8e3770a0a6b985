"""`agentkv cache`: what a cache holds, on disk or in a server; whether it is sound; moving, keeping
and clearing it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from agentkv.cli import _cache_server as server
from agentkv.cli.main import ENVIRONMENT, FINDINGS, USAGE, fail, plain_app
from agentkv.cli.output import Json, print_json, size

if TYPE_CHECKING:
    from agentkv.engine.kv.inspect import CacheDirectory, Entry, Shape

SCHEMA = 1

app = plain_app(
    help="Look into the cache of a server (a URL) or on disk (a directory), and steer it. No engine "
    "is loaded.",
    no_args_is_help=True,
)
server.add_to(app)

T = TypeVar("T")

Where = Annotated[
    str, typer.Argument(metavar="DIR", help="The directory of --disk-cache.", show_default=False)
]
Either = Annotated[
    str,
    typer.Argument(
        metavar="DIR|URL",
        help="The directory of --disk-cache, or a running server.",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(help="Only this model: its name, or the beginning of its fingerprint."),
]
Space = Annotated[
    str | None,
    typer.Option("--namespace", metavar="TAG", help="Only this namespace: its tag's beginning."),
]


@app.command()
def ls(
    where: Either,
    model: Model = None,
    namespace: Space = None,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", min=1, help="Most groups.", show_default="all")
    ] = None,
    json: Json = False,
) -> None:
    """List the groups of a directory, or the nodes of a server: which tokens they hold, never the
    tokens."""
    if server.is_server(where):
        _no_choice(model, namespace)
        return server.nodes(where, limit, json)
    from agentkv.engine.kv.inspect import chosen

    def show(there: CacheDirectory) -> None:
        _print_groups(there, chosen(there, model=model, tag=namespace)[:limit], json)

    _read(where, show)


@app.command()
def top(
    where: Either,
    model: Model = None,
    namespace: Space = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Most groups.")] = 10,
    json: Json = False,
) -> None:
    """What is used most. On disk a use counts half after six hours; in a server, what most others
    share comes first."""
    if server.is_server(where):
        _no_choice(model, namespace)
        return server.top(where, limit, json)
    from agentkv.engine.kv.inspect import chosen

    def show(there: CacheDirectory) -> None:
        now = time.time()
        found = chosen(there, model=model, tag=namespace)
        found.sort(key=lambda e: (-e.uses(now), -e.used))
        _print_groups(there, found[:limit], json)

    _read(where, show)


@app.command()
def stats(where: Either, json: Json = False) -> None:
    """Sums: of a directory by model and layout, of a server by tier."""
    if server.is_server(where):
        return server.stats(where, json)
    from agentkv.engine.kv.inspect import totals

    def show(there: CacheDirectory) -> None:
        found, holder, now = totals(there), there.holder(), time.time()
        if json:
            print_json(
                {
                    "schema": SCHEMA,
                    "directory": str(there.path),
                    "used_by": holder,
                    "groups": sum(t.groups for t in found),
                    "bytes": sum(t.bytes for t in found),
                    "layouts": [
                        {
                            **_shape(t.shape),
                            "groups": t.groups,
                            "tokens": t.tokens,
                            "bytes": t.bytes,
                            "namespaces": t.namespaces,
                            "uses": t.hits,
                            "oldest_use": t.oldest_use,
                            "newest_use": t.newest_use,
                        }
                        for t in found
                    ],
                }
            )
            return
        total = sum(t.bytes for t in found)
        print(f"{there.path}: {sum(t.groups for t in found):,} groups, {size(total)}")
        print(f"used by: {holder or 'nobody'}")
        for t in found:
            facts = t.shape.facts
            print(
                f"{t.shape.model}, {facts.get('dtype', 'unknown')}, page "
                f"{facts.get('page_size', 'unknown')}: {t.groups:,} groups, {t.tokens:,} tokens, "
                f"{size(t.bytes)}, {t.namespaces:,} namespaces, used {_ago(now - t.newest_use)} to "
                f"{_ago(now - t.oldest_use)} ago"
            )

    _read(where, show)


@app.command()
def inspect(
    where: Either,
    name: Annotated[
        str,
        typer.Argument(help="A group's name or a node's id, or its beginning.", show_default=False),
    ],
    text: Annotated[
        bool,
        typer.Option("--text", help="Show the text of its tokens; a directory needs --tokenizer."),
    ] = False,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer.json, or a folder that has one.")
    ] = None,
    json: Json = False,
) -> None:
    """One group: its header, what it hangs from, and whether it is sound. Or one node of a server."""
    if server.is_server(where):
        return server.inspect(where, name, text, json)
    from agentkv.engine.kv.inspect import text_of

    if text and tokenizer is None:
        fail("--text needs --tokenizer: a tokenizer.json, or a folder that has one.", USAGE)

    def show(there: CacheDirectory) -> None:
        entry = there.find(name)
        chain = there.chain(entry)
        problem = None
        try:
            there.check(entry)
        except (OSError, ValueError) as error:
            problem = str(error)
        shape = there.shapes()[entry.layout]
        found: dict[str, Any] = {
            **_group(entry, shape),
            "file": str(there.file(entry.name)),
            "layout": _shape(shape),
            "chain": [e.name for e in chain],
            "ids": entry.tokens,
            "sound": problem is None,
            "problem": problem,
        }
        if text and tokenizer is not None:
            found["text"] = text_of(there.ids(entry), tokenizer)
        if json:
            print_json({"schema": SCHEMA, **found})
        else:
            layout = found.pop("layout")
            for key, value in {**found, **layout, "chain": " > ".join(found["chain"])}.items():
                print(f"{key.replace('_', ' '):<14} {value if value is not None else '-'}")
        if problem is not None:
            raise typer.Exit(FINDINGS)

    _read(where, show)


@app.command()
def verify(
    where: Where,
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove what is damaged, and what hangs from it.")
    ] = False,
    json: Json = False,
) -> None:
    """Read every header and page, and compare all checksums. Exit status 1 if one is wrong."""
    from agentkv.engine.kv import inspect

    def check(there: CacheDirectory) -> tuple[int, list[inspect.Fault]]:
        return len(there.entries()), there.verify(_progress)

    count, faults = _read(where, check)
    removed = 0
    if repair and faults:
        removed = _changed(where, lambda path: inspect.repair(path, faults))
    if json:
        print_json(
            {
                "schema": SCHEMA,
                "groups": count,
                "damaged": [{"name": f.name, "why": f.why} for f in faults],
                "removed": removed,
            }
        )
    else:
        for fault in faults:
            print(f"{fault.name}: {fault.why}")
        gone = f", {removed:,} groups removed" if repair else ""
        print(f"{count:,} groups, {len(faults):,} faults{gone}")
    if faults:
        raise typer.Exit(FINDINGS)


@app.command()
def export(
    where: Where,
    file: Annotated[Path, typer.Argument(help="The file to write.", show_default=False)],
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Only this group and what it hangs from; may be repeated."),
    ] = None,
    model: Model = None,
    namespace: Space = None,
    json: Json = False,
) -> None:
    """Write groups to one file, with all that they hang from. As private as the prompts."""
    from agentkv.engine.kv.archive import export as write

    moved = _changed(
        where,
        lambda path: write(path, file, model=model, tag=namespace, names=tuple(name or ())),
    )
    if json:
        print_json(
            {
                "schema": SCHEMA,
                "groups": moved.groups,
                "bytes": moved.bytes,
                "damaged": list(moved.damaged),
            }
        )
    else:
        print(f"{moved.groups:,} groups, {size(moved.bytes)} to {file}")
        for one in moved.damaged:
            print(f"left out: {one} is damaged, or hangs from what is", file=sys.stderr)
    if moved.damaged:
        raise typer.Exit(FINDINGS)


@app.command("import")
def take_in(
    where: Where,
    file: Annotated[Path, typer.Argument(help="What `export` wrote.", show_default=False)],
    new_layout: Annotated[
        bool, typer.Option("--new-layout", help="Also K/V of models the directory has none of.")
    ] = False,
    json: Json = False,
) -> None:
    """Put the groups of a file into a directory, once all of it has been verified."""
    from agentkv.engine.kv.archive import take_in as read

    moved = _changed(where, lambda path: read(path, file, new_layout=new_layout))
    if json:
        print_json(
            {
                "schema": SCHEMA,
                "groups": moved.groups,
                "bytes": moved.bytes,
                "known": moved.known,
            }
        )
        return
    print(f"{moved.groups:,} groups, {size(moved.bytes)}; {moved.known:,} were there already")


@app.command()
def purge(
    where: Where,
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Not used for so long: 90m, 12h, 7d.")
    ] = None,
    model: Model = None,
    namespace: Space = None,
    json: Json = False,
) -> None:
    """Remove groups, for good."""
    from agentkv.engine.kv import inspect

    some = older_than is not None or model is not None or namespace is not None
    if everything == some:
        fail("say what goes: --all, or --older-than, --model or --namespace.", USAGE)
    age = None if older_than is None else inspect.age_of(older_than)
    count, freed = _changed(
        where, lambda path: inspect.purge(path, older_than=age, model=model, tag=namespace)
    )
    if json:
        print_json({"schema": SCHEMA, "groups": count, "bytes": freed})
        return
    print(f"{count:,} groups removed, {size(freed)}")


def _read(where: str, show: Callable[[CacheDirectory], T]) -> T:
    """Open a directory and show something of it."""
    from agentkv.engine.kv.inspect import CacheDirectory, CacheUnavailable

    try:
        with CacheDirectory(_directory(where)) as there:
            return show(there)
    except CacheUnavailable as error:
        fail(str(error), ENVIRONMENT)


def _changed(where: str, work: Callable[[Path], T]) -> T:
    """Do something that changes a directory, or a file made of it."""
    from agentkv.engine.kv.inspect import CacheUnavailable

    try:
        return work(_directory(where))
    except CacheUnavailable as error:
        fail(str(error), ENVIRONMENT)


def _directory(where: str) -> Path:
    if server.is_server(where):
        fail(f"{where} is a server: this command takes the directory of a disk cache.", USAGE)
    return Path(where)


def _no_choice(model: str | None, namespace: str | None) -> None:
    if model is not None or namespace is not None:
        fail("--model and --namespace choose groups of a directory; a server has none.", USAGE)


def _print_groups(there: CacheDirectory, entries: list[Entry], as_json: bool) -> None:
    shapes, now = there.shapes(), time.time()
    if as_json:
        groups = [_group(e, shapes[e.layout]) for e in entries]
        print_json({"schema": SCHEMA, "directory": str(there.path), "groups": groups})
        return
    print(f"{'name':<12}  {'namespace':<9}{'tokens':>16}{'size':>10}{'uses':>7}{'used':>9}  model")
    for e in entries:
        print(
            f"{e.name[:12]}  {e.tag[:8]:<9}{f'{e.start:,}-{e.end:,}':>16}{size(e.size):>10}"
            f"{e.uses(now):>7.1f}{_ago(now - e.used):>9}  {shapes[e.layout].model}"
        )


def _group(entry: Entry, shape: Shape) -> dict[str, Any]:
    return {
        "name": entry.name,
        "model": shape.model,
        "namespace": entry.tag,
        "start": entry.start,
        "tokens": entry.tokens,
        "bytes": entry.size,
        "uses": entry.hits,
        "created": entry.created,
        "used": entry.used,
    }


def _shape(shape: Shape) -> dict[str, Any]:
    return {**shape.facts, "model": shape.model, "fingerprint": shape.facts.get("model")}


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done:,} of {of:,}", end="" if done < of else "\n", file=sys.stderr, flush=True)
