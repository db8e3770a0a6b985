"""`{name}` as `str.format` reads it, and `$name` as `string.Template` does."""

from __future__ import annotations

import re

from agentkv.lint.formats._expression import Facts, Names
from agentkv.lint.formats._messages import Item
from agentkv.lint.formats._region import Region
from agentkv.lint.template import Hole

_FIELD = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[[^\[\]{}\r\n]{1,40}\])*"
FORMAT = re.compile(
    r"\{\{|\}\}|\{(?P<name>" + _FIELD + r")(?P<conversion>![rsa])?(?P<spec>:[^{}\r\n\"']{0,40})?\}"
)
DOLLAR = re.compile(r"\$\$|\$\{(?P<braced>[A-Za-z_]\w*)\}|\$(?P<plain>[a-z_][a-z0-9_]*)\b")
_FINE = re.compile(r"%-?[SMfsTXcRrL]")


def read_format(region: Region, names: Names, *, escapes: bool = True) -> list[Item]:
    """Pieces of a text for `str.format`. A brace that opens no field is text, as in JSON samples.
    `escapes`: `{{` stands for `{` (some frameworks fill in `{x}` by replacement and leave it)."""
    out: list[Item] = []
    at = 0
    for match in FORMAT.finditer(region.text):
        name = match["name"]
        if name is None or (match["spec"] or "")[:2] == ": ":
            continue
        _text(out, region, at, match.start(), ("{{", "{"), ("}}", "}"), escapes)
        out.append(
            hole(
                region,
                match.start(),
                match.end(),
                names,
                re.sub(r"\[['\"]?([^\]'\"]*)['\"]?\]", r".\1", name),
            )
        )
        at = match.end()
    _text(out, region, at, len(region.text), ("{{", "{"), ("}}", "}"), escapes)
    return out


def read_dollar(region: Region, names: Names) -> list[Item]:
    """Pieces of a text for `string.Template`."""
    out: list[Item] = []
    at = 0
    for match in DOLLAR.finditer(region.text):
        name = match["braced"] or match["plain"]
        if name is None:
            continue
        _text(out, region, at, match.start(), ("$$", "$"), ("$$", "$"), True)
        out.append(hole(region, match.start(), match.end(), names, name))
        at = match.end()
    _text(out, region, at, len(region.text), ("$$", "$"), ("$$", "$"), True)
    return out


def hole(region: Region, start: int, end: int, names: Names, name: str) -> Hole:
    """A hole about one name."""
    found: Facts = names.look_up(name)
    return Hole(
        expr=region.text[start:end],
        name=found.name,
        level=found.level,
        slice=region.slice(start, end),
        traits=found.traits,
        why=found.why,
        known=found.known,
        example=found.example,
        reads=found.reads,
    )


def _text(
    out: list[Item],
    region: Region,
    start: int,
    end: int,
    first: tuple[str, str],
    second: tuple[str, str],
    escapes: bool,
) -> None:
    if start >= end:
        return
    value = region.text[start:end]
    if escapes:
        value = value.replace(*first) if first == second else value.replace(*first).replace(*second)
    out.append(region.piece(start, end, value))


def format_holes(text: str) -> list[str]:
    """Names of the fields of a text, in order; escaped ones are none."""
    return [m["name"] for m in FORMAT.finditer(text) if m["name"] and (m["spec"] or "")[:2] != ": "]


def dollar_holes(text: str) -> list[str]:
    return [m["braced"] or m["plain"] for m in DOLLAR.finditer(text) if m["braced"] or m["plain"]]
