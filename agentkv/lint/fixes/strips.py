"""The strip of a message, by what it is written in: text, JSON, YAML or Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from agentkv.lint.fixes.strings import python_tape
from agentkv.lint.fixes.tape import Tape, Uncuttable
from agentkv.lint.source import Slice, Source
from agentkv.lint.template import Part, Template, Text


def run_of(part: Part, index: int) -> tuple[int, int]:
    """The pieces around one that stand in the file: a format may put words of its own between what
    it takes from two places."""
    start, end = index, index + 1
    while start and part.pieces[start - 1].slice is not None:
        start -= 1
    while end < len(part.pieces) and part.pieces[end].slice is not None:
        end += 1
    return start, end


def tape_of(source: Source, format: str, template: Template, part: Part, index: int = -1) -> Tape:
    """The strip of a message; of the stretch around a piece, where a format adds words of its own
    (`index`). Raises `Uncuttable`."""
    if index >= 0 and format != "python":
        start, end = run_of(part, index)
        part = replace(part, pieces=part.pieces[start:end])
    if not template.writable:
        raise Uncuttable("its text is put together from several places, and not written at one.")
    where = [p.slice for p in part.pieces]
    if not where or any(w is None for w in where):
        raise Uncuttable("part of its text comes from elsewhere.")
    spots = [w for w in where if w is not None]
    for a, b in pairwise(spots):
        if b.start < a.end:
            raise Uncuttable("its text is not written in the order in which it is rendered.")
    region = Slice(spots[0].start, spots[-1].end)
    holes = [p.slice for p in part.pieces if not isinstance(p, Text) and p.slice is not None]
    if format == "python" or source.path.endswith((".py", ".pyi")):
        made = python_tape(source, region)
    elif _is_json(source):
        made = _json(source, region)
    elif _is_yaml(source, format):
        made = _yaml(source, region)
    else:
        made = _plain(source, region)
    ranges = []
    for hole in holes:
        found = made.find(hole)
        if found is None:
            raise Uncuttable("a variable in it has no clear place in the file.")
        ranges.append(found)
    return Tape(
        made.text,
        made.starts,
        tuple(sorted({*ranges, *made.holes})),
        made.kind,
        made.newline,
        made.bare,
        made.tokens,
        made.owner,
    )


# -- plain text -----------------------------------------------------------------------------------


def _plain(source: Source, region: Slice) -> Tape:
    text, starts = _lines(source.text, region.start, region.end)
    newline = "\r\n" if "\r\n" in source[region] else "\n"
    return Tape(text, starts, (), "plain", newline, newline)


def _lines(raw: str, start: int, end: int) -> tuple[str, list[int]]:
    """The text between two offsets, with CRLF as one character."""
    out: list[str] = []
    starts: list[int] = []
    at = start
    while at < end:
        width = 2 if raw.startswith("\r\n", at) and at + 2 <= end else 1
        out.append("\n" if width == 2 else raw[at])
        starts.append(at)
        at += width
    starts.append(end)
    return "".join(out), starts


# -- JSON -----------------------------------------------------------------------------------------

_JSON_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.S
)
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)


@lru_cache(maxsize=32)
def _json_text(text: str, path: str) -> bool:
    if path.endswith((".json", ".jsonl", ".ndjson")):
        return True
    if not text.lstrip("\ufeff \t\r\n").startswith(('{"', "[", "{\n", "{\r", "{ ")):
        return False
    try:
        json.loads(text.lstrip("\ufeff"))
    except ValueError:
        return False
    return True


def _is_json(source: Source) -> bool:
    return _json_text(source.text, source.path)


def _json(source: Source, region: Slice) -> Tape:
    text = source.text
    for found in _JSON_STRING.finditer(text):
        if found.start() < region.start and region.end <= found.end() - 1:
            break
        if found.start() >= region.end:
            raise Uncuttable("its text is not one JSON string.")
    else:
        raise Uncuttable("its text is not one JSON string.")
    out, starts = _escaped(
        text, region.start, region.end, _JSON_ESCAPE, lambda m: str(json.loads(f'"{m}"'))
    )
    return Tape(out, starts, (), "json", "\\n", "\\n")


def _escaped(
    raw: str, start: int, end: int, escape: re.Pattern[str], value: Callable[[str], str]
) -> tuple[str, list[int]]:
    out: list[str] = []
    starts: list[int] = []
    at = start
    while at < end:
        found = escape.match(raw, at, end) if raw[at] == "\\" else None
        if found is None:
            out.append(raw[at])
            starts.append(at)
            at += 1
            continue
        made = value(found[0])
        out.append(made)
        starts += [at] * len(made)
        at = found.end()
    starts.append(end)
    return "".join(out), starts


# -- YAML -----------------------------------------------------------------------------------------


def _is_yaml(source: Source, format: str) -> bool:
    """By the name of the file, or of the format where it has none (standard input)."""
    if "." in source.path.rpartition("/")[2]:
        return source.path.endswith((".yaml", ".yml"))
    return format in ("yaml", "crewai", "promptfoo")


@lru_cache(maxsize=8)
def _scalars(text: str) -> list[tuple[int, int, str | None]]:
    """`(start, end, style)` of every scalar, by PyYAML's scanner. Nothing is constructed."""
    import yaml

    lead = 1 if text.startswith("\ufeff") else 0
    found = []
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.ScalarEvent):
                mark: Any = event
                found.append(
                    (mark.start_mark.index + lead, mark.end_mark.index + lead, event.style)
                )
    except yaml.YAMLError as error:
        raise Uncuttable("the file is not valid YAML.") from error
    return found


def _yaml(source: Source, region: Slice) -> Tape:
    text = source.text
    found = next((s for s in _scalars(text) if s[0] <= region.start and region.end <= s[1]), None)
    if found is None:
        raise Uncuttable("its text is not one YAML scalar.")
    start, end, style = found
    if style == "|":
        return _block(text, start, end, region)
    if style == ">":
        raise Uncuttable(
            "it is a folded scalar (`>`), whose line breaks are not those of the text."
        )
    if style is None or style == "'":
        if "\n" in text[start:end]:
            raise Uncuttable("its scalar runs over several lines, which YAML folds into one.")
        raise Uncuttable("its scalar is one line; a literal block (`|`) would give it lines.")
    if "\n" in text[start:end]:
        raise Uncuttable("its quoted scalar runs over several lines, which YAML folds into one.")
    out, starts = _escaped(text, region.start, region.end, _YAML_ESCAPE, _yaml_value)
    return Tape(out, starts, (), "yaml-quoted", "\\n", "\\n")


_YAML_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.S)


def _yaml_value(written: str) -> str:
    import yaml

    return str(yaml.safe_load(f'"{written}"'))


def _block(text: str, start: int, end: int, region: Slice) -> Tape:
    """A literal block: the indentation behind a line break belongs to the break."""
    head = text.find("\n", start)
    if head < 0 or head + 1 > region.end:
        raise Uncuttable("its block scalar is empty.")
    first = re.compile(r"[ \t\r\n]*").match(text, head + 1)
    body = first.end() if first else head + 1
    indent = body - (text.rfind("\n", 0, body) + 1)
    eol = "\r\n" if "\r\n" in text[start:end] else "\n"
    out: list[str] = []
    starts: list[int] = []
    at = max(region.start, head + 1)
    if text.rfind("\n", 0, at) + 1 == at:
        at += indent  # the region begins with a line's indentation
    while at < region.end:
        if text.startswith(eol, at):
            behind = at + len(eol)
            blank = text.startswith(eol, behind)
            width = 0
            while (
                not blank
                and width < indent
                and behind + width < region.end
                and text[behind + width] == " "
            ):
                width += 1
            out.append("\n")
            starts.append(at)
            at = behind + width
        else:
            out.append(text[at])
            starts.append(at)
            at += 1
    starts.append(max(at, region.end) if at > region.end else region.end)
    return Tape("".join(out), starts, (), "yaml-block", eol + " " * indent, eol)
