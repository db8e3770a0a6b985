"""`agentkv trace`: replay request logs, and say what was lost and to what."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentkv.trace.options import Common

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    help="Replay request logs: what was reused, what was lost, and to what.",
)


class Dtype(StrEnum):
    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    fp8 = "fp8"


Logs = Annotated[
    list[str],
    typer.Argument(help="Log files, also .gz and .zst; `-` reads standard input.", metavar="LOG"),
]
Format = Annotated[
    str | None, typer.Option(help="Read every line as this format [each line's own].")
]
Session = Annotated[
    str | None, typer.Option(help="Only this session: its name, or #3 where it was inferred.")
]
Target = Annotated[str, typer.Option(help="Whose cache: an engine or a provider.")]
Pool = Annotated[
    str | None, typer.Option(help="Size of the KV memory, as 8GiB; needs --model [unlimited].")
]
PoolTokens = Annotated[int | None, typer.Option(min=1, help="The same in tokens.")]
Model = Annotated[
    str | None, typer.Option(help="With --pool: a known model, a folder, or a config.json.")
]
KvDtype = Annotated[
    Dtype | None, typer.Option("--kv-dtype", help="With --pool: of the KV memory [float16].")
]
Policy = Annotated[str | None, typer.Option(help="What is evicted first [the target's own].")]
Tokenizer = Annotated[
    Path | None, typer.Option(help="A tokenizer.json or its folder, for exact tokens [estimate].")
]
Template = Annotated[
    Path | None,
    typer.Option(help="A chat template (.jinja, tokenizer_config.json, a model's folder)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Redact = Annotated[bool, typer.Option("--redact", help="Print no text of any prompt.")]


@app.command()
def report(
    logs: Logs,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page that needs no other file; `-`: stdout.")
    ] = None,
    json: Json = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="With --json: write to a file.")
    ] = None,
    target: Target = "agentkv",
    pool: Pool = None,
    pool_tokens: PoolTokens = None,
    model: Model = None,
    kv_dtype: KvDtype = None,
    policy: Policy = None,
    tokenizer: Tokenizer = None,
    template: Template = None,
    format: Format = None,
    session: Session = None,
    top: Annotated[int, typer.Option(min=0, help="Causes that are shown with an example.")] = 5,
    no_fixed: Annotated[
        bool, typer.Option("--no-fixed", help="Leave out the rate if mended: one pass, not three.")
    ] = False,
    redact: Redact = False,
    fail_under: Annotated[
        str | None, typer.Option(help="1 if the hit rate is lower: 0.8 or 80%.", metavar="RATE")
    ] = None,
) -> None:
    """What a log reused, what it lost, and to what.

    Exit status: 0, 1 when a line could not be read or --fail-under failed, 2 wrong usage.
    """
    from agentkv.trace import command

    common = _common(
        logs,
        format,
        session,
        tokenizer,
        template,
        target,
        policy,
        pool,
        pool_tokens,
        model,
        kv_dtype,
    )
    options = command.ReportOptions(
        html=html,
        json=json,
        output=output,
        redact=redact,
        top=top,
        fail_under=fail_under,
        fixed=not no_fixed,
    )
    finish(lambda: command.report(common, options))


@app.command()
def replay(
    logs: Logs,
    share: Annotated[
        list[str] | None,
        typer.Option(help="Size as a share of the log's distinct tokens [1%, 5%, 25%]."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="What is evicted first [lru, hot].")
    ] = None,
    target: Target = "agentkv",
    pool: Pool = None,
    pool_tokens: PoolTokens = None,
    model: Model = None,
    kv_dtype: KvDtype = None,
    tokenizer: Tokenizer = None,
    template: Template = None,
    format: Format = None,
    session: Session = None,
    json: Json = False,
) -> None:
    """Hit rates by the size of the cache, and by what it evicts."""
    from agentkv.trace import command

    common = _common(
        logs, format, session, tokenizer, template, target, None, pool, pool_tokens, model, kv_dtype
    )
    options = command.ReplayOptions(shares=_split(share), policies=_split(policy), json=json)
    finish(lambda: command.replay(common, options))


@app.command()
def diff(
    before: Annotated[str, typer.Argument(help="The earlier log.", metavar="A")],
    after: Annotated[str, typer.Argument(help="The later log.", metavar="B")],
    tolerance: Annotated[
        str | None,
        typer.Option(
            help="Fall of the hit rate from which B is called worse [1%].", metavar="RATE"
        ),
    ] = None,
    target: Target = "agentkv",
    pool: Pool = None,
    pool_tokens: PoolTokens = None,
    model: Model = None,
    kv_dtype: KvDtype = None,
    policy: Policy = None,
    tokenizer: Tokenizer = None,
    template: Template = None,
    format: Format = None,
    json: Json = False,
    redact: Redact = False,
) -> None:
    """What changed between two logs, in tokens. Exit status 1 when the second is worse."""
    from agentkv.trace import command

    common = _common(
        [before, after],
        format,
        None,
        tokenizer,
        template,
        target,
        policy,
        pool,
        pool_tokens,
        model,
        kv_dtype,
    )
    options = command.DiffOptions(tolerance=tolerance, json=json, redact=redact)
    finish(lambda: command.diff(common, options))


@app.command()
def show(
    logs: Logs,
    session: Annotated[
        str | None, typer.Option(help="Its name, or #3 [the one that lost most].")
    ] = None,
    target: Target = "agentkv",
    pool: Pool = None,
    pool_tokens: PoolTokens = None,
    model: Model = None,
    kv_dtype: KvDtype = None,
    policy: Policy = None,
    tokenizer: Tokenizer = None,
    template: Template = None,
    format: Format = None,
    json: Json = False,
    redact: Redact = False,
) -> None:
    """One session, call by call."""
    from agentkv.trace import command

    common = _common(
        logs,
        format,
        session,
        tokenizer,
        template,
        target,
        policy,
        pool,
        pool_tokens,
        model,
        kv_dtype,
    )
    finish(lambda: command.show(common, json=json, redact=redact))


@app.command("what-if")
def what_if(
    logs: Logs,
    fix: Annotated[
        list[str] | None, typer.Option(help="A mending to try [those of the log's causes].")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the mended copy: a new file, OpenAI JSON lines."
        ),
    ] = None,
    target: Target = "agentkv",
    pool: Pool = None,
    pool_tokens: PoolTokens = None,
    model: Model = None,
    kv_dtype: KvDtype = None,
    policy: Policy = None,
    tokenizer: Tokenizer = None,
    template: Template = None,
    format: Format = None,
    session: Session = None,
    json: Json = False,
) -> None:
    """The hit rate after each mending, tried on a copy of the log."""
    from agentkv.trace import command

    common = _common(
        logs,
        format,
        session,
        tokenizer,
        template,
        target,
        policy,
        pool,
        pool_tokens,
        model,
        kv_dtype,
    )
    options = command.WhatIfOptions(fixes=_split(fix), output=output, json=json)
    finish(lambda: command.what_if(common, options))


@app.command()
def redact(
    logs: Logs,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A new file [standard output].")
    ] = None,
    key_env: Annotated[
        str | None,
        typer.Option(
            help="Variable with a key; two logs that are to be compared need the same one [random]."
        ),
    ] = None,
    format: Format = None,
    session: Session = None,
) -> None:
    """A copy of a log without its texts, of which reports say the same."""
    from os import environ

    from agentkv.cli.main import USAGE, fail
    from agentkv.trace import command

    key = None if key_env is None else environ.get(key_env)
    if key_env is not None and not key:
        fail(f"the variable {key_env} is not set.", USAGE)
    common = _common(logs, format, session)
    finish(lambda: command.redact(common, command.RedactOptions(output=output, key=key)))


def _common(
    logs: list[str],
    format: str | None = None,
    session: str | None = None,
    tokenizer: Path | None = None,
    template: Path | None = None,
    target: str = "agentkv",
    policy: str | None = None,
    pool: str | None = None,
    pool_tokens: int | None = None,
    model: str | None = None,
    kv_dtype: Dtype | None = None,
) -> Common:
    from agentkv.trace.options import Common

    return Common(
        logs=tuple(logs),
        format=format,
        session=session,
        tokenizer=tokenizer,
        template=template,
        target=target,
        policy=policy,
        pool=pool,
        pool_tokens=pool_tokens,
        model=model,
        kv_dtype=kv_dtype.value if kv_dtype is not None else None,
    )


def finish(run: Callable[[], int]) -> None:
    """Run a command, and end with its exit status."""
    from agentkv.cli.main import ENVIRONMENT, USAGE, fail
    from agentkv.trace.options import Unavailable, WrongUsage

    try:
        status = run()
    except WrongUsage as error:
        fail(str(error), USAGE)
    except Unavailable as error:
        fail(str(error), ENVIRONMENT)
    sys.stdout.flush()
    raise typer.Exit(status)


def _split(words: list[str] | None) -> tuple[str, ...]:
    """`--fix tools,history --fix json` as one list."""
    return tuple(w.strip() for word in words or () for w in word.split(",") if w.strip())
