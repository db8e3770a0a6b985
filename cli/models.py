"""`agentkv models ls|pull|path|rm`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentkv.cli.main import plain_app
from agentkv.cli.output import Json, print_json, size

app = plain_app(help="List, pull and remove models.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="A known name, a directory, or a Hugging Face id.", show_default=False)
]


@app.command()
def ls(json: Json = False) -> None:
    """List the embedded default and every pulled model."""
    from agentkv.engine.model import store

    entries = store.list_models()
    if json:
        print_json(
            {
                "schema": 1,
                "home": str(store.home()),
                "models": [
                    {
                        "name": e.name,
                        "pulled": e.pulled,
                        "size_bytes": e.size_bytes,
                        "license": e.license,
                        "source": e.source,
                        "path": str(e.path) if e.pulled else None,
                    }
                    for e in entries
                ],
            }
        )
        return
    width = max(len(e.name) for e in entries)
    for e in entries:
        print(
            f"{e.name:{width}}  {size(e.size_bytes) if e.pulled else 'not pulled':>10}  {e.license}  {e.source}"
        )


@app.command()
def pull(
    name: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Fetch it again even if it is here.")
    ] = False,
) -> None:
    """Fetch a model, or do nothing if it is here. Prints its directory."""
    from agentkv.engine.model import store

    print(store.pull(name, force=force))


@app.command()
def path(name: Name) -> None:
    """Print the directory of a model that is here."""
    from agentkv.engine.model import store

    print(store.resolve(name, pull=False))


@app.command()
def rm(name: Name) -> None:
    """Delete a pulled model."""
    from agentkv.engine.model import store

    store.remove(name)
