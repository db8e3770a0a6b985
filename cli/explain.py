"""`agentkv explain`: two requests, the first token in which they differ, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkv.cli.output import Json


def explain(
    requests: Annotated[
        list[str] | None,
        typer.Argument(
            help="Two JSON files with a request each, or lines of logs as run.jsonl:7; with "
            "--request-id the logs to look in.",
            metavar="A B",
        ),
    ] = None,
    request_id: Annotated[
        str | None,
        typer.Option(
            help="Explain this call: of a log, or of a running server when none is named."
        ),
    ] = None,
    url: Annotated[
        str, typer.Option(help="The server. AGENTKV_API_KEY is its key.")
    ] = "http://127.0.0.1:8080",
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="A tokenizer.json or its folder, for exact tokens [estimate]."),
    ] = None,
    template: Annotated[
        Path | None,
        typer.Option(help="A chat template (.jinja, tokenizer_config.json, a model's folder)."),
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="Read the requests as this format [each one's own].")
    ] = None,
    redact: Annotated[bool, typer.Option("--redact", help="Print no text of any prompt.")] = False,
    json: Json = False,
) -> None:
    """Compare two requests: the first token that differs, its segment, the reason and the rule.

    Exit status: 0, 1 when tokens that could have been reused were lost, 2 wrong usage.
    """
    from agentkv.cli.trace import finish
    from agentkv.trace import explained

    options = explained.Options(
        requests=tuple(requests or ()),
        request_id=request_id,
        url=url,
        tokenizer=tokenizer,
        template=template,
        format=format,
        redact=redact,
        json=json,
    )
    finish(lambda: explained.run(options))
