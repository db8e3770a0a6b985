"""Where chat templates run: a jinja2 sandbox in which nothing can be changed.

The environment is the one that transformers renders with (same filters, globals, block trimming,
the `generation` tag), built here from jinja2 alone: importing transformers takes longer than
loading the tokenizer, and its `strftime_now` reads the clock. Here the date is pinned, so that a
template which writes today's date does not change every prompt at midnight.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

# The date that Llama 3's template falls back to when it has no clock.
PINNED_DATE = datetime(2024, 7, 26)


class Refused(jinja2.TemplateError):
    """Raised by the template itself, through `raise_exception`."""


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}`, which marks assistant text for training; the text itself passes."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    @staticmethod
    def _pass(caller: Callable[[], str]) -> str:
        return caller()


def sandbox(now: datetime = PINNED_DATE) -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """A fresh environment in which `strftime_now` formats `now`."""

    def raise_exception(message: object) -> None:
        raise Refused(str(message))

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        # jinja2's own filter escapes HTML characters.
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
        # A function, so that a template cannot walk from the class to anything else.
        return dict(*args, **kwargs)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda pattern: now.strftime(pattern)
    environment.globals["dict"] = make_dict
    return environment
