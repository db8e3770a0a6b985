"""`agentkv demo`: a small LangChain agent on a real model, with and without the layout."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from agentkv.cli.output import Json


class Layout(StrEnum):
    both = "both"
    off = "off"
    static_first = "static_first"


class Dtype(StrEnum):
    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"


def demo(
    model: Annotated[
        str, typer.Option(help="A known model, a directory, or a Hugging Face id.")
    ] = "smollm2-135m",
    trace: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Run recorded sessions (JSON lines, .gz too) instead."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="With --trace: how many sessions at most.")] = 4,
    layout: Annotated[Layout, typer.Option(help="Which runs to make.")] = Layout.both,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer at most.")] = 64,
    steps: Annotated[
        int, typer.Option(min=0, help="Model calls of a turn that may use tools.")
    ] = 2,
    page_size: Annotated[int, typer.Option(help="Tokens a KV page: 1, 16, 32 or 64.")] = 1,
    dtype: Annotated[Dtype, typer.Option(help="Of weights and KV.")] = Dtype.auto,
    seed: Annotated[int, typer.Option(help="Of the changing order of the tools.")] = 0,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the model's answers too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a support desk's agent twice on a real model: as agents are usually written, and laid
    out. Prints, call by call, how many prompt tokens came out of the cache and why the rest did
    not."""
    from agentkv.cli.main import USAGE, fail
    from agentkv.demo.demo import LAYOUTS, DemoOptions, main
    from agentkv.demo.traces import TraceError

    options = DemoOptions(
        model=model,
        trace=trace,
        limit=limit,
        layouts=[name for name in LAYOUTS if layout.value in ("both", name)],
        max_tokens=max_tokens,
        steps=steps,
        page_size=page_size,
        dtype=dtype.value,
        seed=seed,
    )
    try:
        status = main(options, as_json=as_json, verbose=verbose)
    except TraceError as error:
        fail(str(error), USAGE)
    raise typer.Exit(status)
