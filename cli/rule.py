"""`agentkv rule`: what a rule of the linter catches, why, and when it is wrong."""

from __future__ import annotations

from typing import Annotated

import typer

from agentkv.cli.output import Json, print_json


def rule(
    rule: Annotated[
        str | None, typer.Argument(help="A code or a name, as KV101.", metavar="RULE")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All rules, one line each.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="With --all: all pages as one document.")
    ] = False,
    json: Json = False,
) -> None:
    """Print a rule's page."""
    from agentkv.cli.main import USAGE, fail
    from agentkv.lint.pages import first_sentence, page_text, rules_document, rules_text
    from agentkv.lint.rule import rule_named

    if every == (rule is not None):
        fail("give either a rule (agentkv rule KV101) or --all.", USAGE)
    if rule is None:
        print(rules_document() if markdown else rules_text(as_json=json), end="")
        return
    try:
        page = page_text(rule)
    except KeyError:
        fail(f"no rule has the code or name {rule!r}; `agentkv rule --all` lists them.", USAGE)
    if not json:
        print(page, end="")
        return
    found = rule_named(rule)
    print_json(
        {
            "schema": 1,
            "code": found.code,
            "name": found.name,
            "family": found.family(),
            "certainty": found.certainty,
            "summary": first_sentence(found),
            "page": found.page(),
        }
    )
