"""`agentkv lint`: find, price and fix the layouts that break prefix reuse."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from agentkv.lint.command import Options


class Form(StrEnum):
    full = "full"
    concise = "concise"
    json = "json"
    jsonl = "jsonl"
    sarif = "sarif"
    github = "github"
    gitlab = "gitlab"
    junit = "junit"
    markdown = "markdown"


class Least(StrEnum):
    error = "error"
    warning = "warning"
    info = "info"


class Fail(StrEnum):
    error = "error"
    warning = "warning"
    info = "info"
    never = "never"


class Panels(TyperCommand):
    """Help in sections, drawn without rich, whose import alone takes longer than the help may."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and param.param_type_name == "option":
                panel = getattr(param, "rich_help_panel", None) or "Other"
                sections.setdefault(panel, []).append(record)
        for title in sorted(sections, key=_ORDER.index):
            with formatter.section(title):
                formatter.write_dl(sorted(sections[title], key=lambda row: row[0].lstrip("-")))


_RULES, _FIXES, _OUTPUT, _WHAT, _EXIT, _COST, _OTHER = _ORDER = [
    "Rules",
    "Fixes",
    "Output",
    "What is looked at",
    "Exit status",
    "Cost",
    "Other",
]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Words = list[str] | None


@app.command("lint", cls=Panels)
def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Files and folders [.]; `-` reads standard input.", metavar="PATH"),
    ] = None,
    select: Annotated[
        Words,
        typer.Option(help="Codes, prefixes (KV1), names or ALL.", rich_help_panel=_RULES),
    ] = None,
    extend_select: Annotated[
        Words, typer.Option(help="More, beside the selected.", rich_help_panel=_RULES)
    ] = None,
    ignore: Annotated[
        Words, typer.Option(help="Rules to leave out.", rich_help_panel=_RULES)
    ] = None,
    severity: Annotated[
        Least | None,
        typer.Option(help="The least that is reported [warning].", rich_help_panel=_RULES),
    ] = None,
    list_rules: Annotated[
        bool, typer.Option("--list-rules", help="List all rules.", rich_help_panel=_RULES)
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply safe fixes.", rich_help_panel=_FIXES)
    ] = False,
    unsafe_fixes: Annotated[
        bool,
        typer.Option(
            "--unsafe-fixes",
            help="With --fix or --diff, also those that reorder a prompt.",
            rich_help_panel=_FIXES,
        ),
    ] = False,
    diff: Annotated[
        bool,
        typer.Option("--diff", help="Print fixes as a diff, write none.", rich_help_panel=_FIXES),
    ] = False,
    fix_only: Annotated[
        bool,
        typer.Option(
            "--fix-only", help="Apply fixes, do not report the rest.", rich_help_panel=_FIXES
        ),
    ] = False,
    form: Annotated[
        Form | None, typer.Option("--format", "-f", help="[full]", rich_help_panel=_OUTPUT)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write to a file.", rich_help_panel=_OUTPUT),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Print no text of any prompt.", rich_help_panel=_OUTPUT),
    ] = False,
    statistics: Annotated[
        bool,
        typer.Option("--statistics", help="Counts for each rule.", rich_help_panel=_OUTPUT),
    ] = False,
    show_files: Annotated[
        bool,
        typer.Option("--show-files", help="List the files, lint none.", rich_help_panel=_OUTPUT),
    ] = False,
    show_settings: Annotated[
        bool,
        typer.Option("--show-settings", help="Print the settings.", rich_help_panel=_OUTPUT),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Findings only, no summary.", rich_help_panel=_OUTPUT),
    ] = False,
    exclude: Annotated[
        Words, typer.Option(help="Globs to leave out.", rich_help_panel=_WHAT)
    ] = None,
    force_exclude: Annotated[
        bool,
        typer.Option(
            "--force-exclude",
            help="Take named files only where a folder's would be taken (hooks).",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    stdin_filename: Annotated[
        str | None,
        typer.Option(help="Name of standard input.", rich_help_panel=_WHAT),
    ] = None,
    input_format: Annotated[
        str | None,
        typer.Option(help="Read all files as this format.", rich_help_panel=_WHAT),
    ] = None,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            help="Find the lines that cost a log its hits; `-` is standard input.",
            metavar="FILE",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="With --logs: where its prompts come from; paths are more logs then.",
            metavar="PATH",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="A file of known findings.", rich_help_panel=_WHAT),
    ] = None,
    update_baseline: Annotated[
        bool,
        typer.Option("--update-baseline", help="Write all findings to it.", rich_help_panel=_WHAT),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(help="Only prompts that changed after a git revision.", rich_help_panel=_WHAT),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Engine or provider [agentkv].", rich_help_panel=_COST),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="A tokenizer.json, for exact counts.", rich_help_panel=_COST),
    ] = None,
    min_tokens: Annotated[
        int | None,
        typer.Option(
            min=0, help="Static tokens behind a slot that matter [64].", rich_help_panel=_COST
        ),
    ] = None,
    fail_on: Annotated[
        Fail | None,
        typer.Option(help="The least that makes it 1 [warning].", rich_help_panel=_EXIT),
    ] = None,
    max_loss: Annotated[
        int | None,
        typer.Option(
            min=0, help="1 only if a call loses more tokens in all.", rich_help_panel=_EXIT
        ),
    ] = None,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="0 also with findings.", rich_help_panel=_EXIT)
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="A configuration file.", rich_help_panel=_OTHER)
    ] = None,
    isolated: Annotated[
        bool,
        typer.Option("--isolated", help="Read no configuration.", rich_help_panel=_OTHER),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=0, help="Processes [all].", rich_help_panel=_OTHER),
    ] = None,
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Read every file again.", rich_help_panel=_OTHER),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again when a file changes.", rich_help_panel=_OTHER)
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option(help="Print a rule's page.", metavar="RULE", rich_help_panel=_RULES),
    ] = None,
) -> None:
    """Find, price and fix the prompt layouts that break prefix reuse.

    Exit status: 0 nothing found, 1 findings, 2 nothing could be analysed or wrong usage.
    """
    from agentkv.lint.command import Options, run

    options = Options(
        paths=tuple(paths or ()),
        form=form.value if form is not None else None,
        output=output,
        redact=redact,
        quiet=quiet,
        statistics=statistics,
        show_files=show_files,
        show_settings=show_settings,
        list_rules=list_rules,
        explain=explain,
        fix=fix,
        unsafe_fixes=unsafe_fixes,
        diff=diff,
        fix_only=fix_only,
        stdin_filename=stdin_filename,
        input_format=input_format,
        baseline=baseline,
        update_baseline=update_baseline,
        since=since,
        exit_zero=exit_zero,
        config=config,
        isolated=isolated,
        watch=watch,
        settings={
            "select": _split(select),
            "extend_select": _split(extend_select),
            "ignore": _split(ignore),
            "severity": severity.value if severity is not None else None,
            "fail_on": fail_on.value if fail_on is not None else None,
            "max_loss": max_loss,
            "min_tokens": min_tokens,
            "target": target,
            "tokenizer": tokenizer,
            "jobs": jobs,
            "cache": False if no_cache else None,
        },
        exclude=_split(exclude) or (),
        force_exclude=force_exclude,
        logs=tuple(logs or ()),
        sources=tuple(source or ()),
    )
    raise typer.Exit(_run(run, options))


def _run(run: Any, options: Options) -> int:
    from agentkv.cli.main import USAGE, fail
    from agentkv.lint.command import WrongUsage

    try:
        status: int = run(options)
    except WrongUsage as error:
        fail(str(error), USAGE)
    sys.stdout.flush()
    return status


def _split(words: Words) -> tuple[str, ...] | None:
    """`--select KV1,KV2 --select KV3` as one list."""
    if words is None:
        return None
    return tuple(w.strip() for word in words for w in word.split(",") if w.strip())
