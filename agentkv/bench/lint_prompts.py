"""Real prompt templates with labels, written out as the files in which they would be found."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from agentkv.bench.prompts import TracesMissing

TEMPLATES = "prompts/oss_prompt_templates.jsonl.gz"
LABELS = "prompts/labels.jsonl"
CORRECTIONS = "lint_labels.toml"

Expected = Literal["FLAG", "WARN", "INFO", "OK"]
Family = Literal["volatile", "order"]

_TIME = re.compile(r"date|time|today|now\b", re.IGNORECASE)
_FIRST = re.compile(r"first per-call placeholder (.+?) at \d+/")


@dataclass(frozen=True, slots=True)
class Correction:
    """A draft label that is wrong: the right one, and why."""

    idx: int
    name: str
    label: Expected
    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """A finding as far as this bench cares."""

    code: str
    first: int
    last: int

    def at(self, lines: frozenset[int]) -> bool:
        return any(self.first <= line <= self.last for line in lines)


@dataclass(slots=True)
class Row:
    """One template with its label, its file, and what was found in it at default severity.

    `drafted` is the label before corrections. `family` is what a fitting rule belongs to: volatile content where the first placeholder that
    changes with each call is a time, order otherwise. `places` are the lines of its placeholders, `times` of
    those that are called after a time.
    """

    idx: int
    repo: str
    name: str
    kind: str
    label: Expected
    drafted: Expected
    family: Family
    path: Path
    places: frozenset[int]
    times: frozenset[int]
    found: list[Found] = field(default_factory=list)

    @property
    def flagged(self) -> bool:
        return bool(self.found)

    @property
    def fitting(self) -> list[Found]:
        """Findings about a placeholder of this template, by a rule that can be right about it: one
        of volatile content has to point at a time, one of order at any placeholder."""
        places = {"KV1": self.times, "KV2": self.places}
        return [f for f in self.found if f.at(places.get(f.code[:3], frozenset()))]


def corrections() -> list[Correction]:
    """Labels that this project holds to be wrong, from its data file."""
    text = (files("agentkv.bench") / CORRECTIONS).read_text(encoding="utf-8")
    return [Correction(**row) for row in tomllib.loads(text).get("label", [])]


def write(traces: Path, folder: Path, fixed: Sequence[Correction]) -> list[Row]:
    """Write every template below `folder` and return the rows. Raises `TracesMissing`."""
    if not (traces / TEMPLATES).is_file() or not (traces / LABELS).is_file():
        raise TracesMissing(traces)
    with gzip.open(traces / TEMPLATES, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    labels = [json.loads(line) for line in (traces / LABELS).read_text("utf-8").splitlines()]
    right = {(c.idx, c.name): c.label for c in fixed}
    return list(_rows(records, labels, right, folder))


def _rows(
    records: list[dict[str, Any]],
    labels: list[dict[str, Any]],
    right: dict[tuple[int, str], Expected],
    folder: Path,
) -> Iterator[Row]:
    for n, (record, label) in enumerate(zip(records, labels, strict=True)):
        if record["name"] != label["name"] or record["path"] != label["path"]:
            raise ValueError(f"template and label of row {n} are not about the same prompt.")
        path, text = _file(record)
        file = folder / f"r{n:02d}" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        places = _places(record, text)
        yield Row(
            idx=label["idx"],
            repo=record["repo"],
            name=record["name"],
            kind=record["kind"],
            label=right.get((label["idx"], label["name"]), label["expected"]),
            drafted=label["expected"],
            family=_family(label["why"]),
            path=file,
            places=frozenset(places),
            times=frozenset(line for line, expr in places.items() if _TIME.search(expr)),
        )


def _family(why: str) -> Family:
    first = _FIRST.search(why)
    return "volatile" if first is not None and _TIME.search(first[1]) else "order"


# -- a template as a file --------------------------------------------------------------------------


def _file(record: dict[str, Any]) -> tuple[str, str]:
    """Where a template would stand, and the text of that file."""
    name, text = record["name"], record["template"]
    if record["kind"] == "jinja2":
        return record["path"], text
    if record["kind"] == "ts-template":
        return f"prompts/{name.lower()}.txt", text
    # A returned text has no name in the records, only its line.
    plain = re.sub(r"\W", "_", name.replace("return@", "prompt_"))
    make = _function if record["kind"] == "fstring" else _constant
    return record["path"], make(plain, text, record["placeholders"])


def _constant(name: str, text: str, placeholders: list[dict[str, Any]]) -> str:
    """A module constant, and the function that fills it in where it has placeholders."""
    body = f'"""Prompts."""\n\n{name} = {_literal(text)}\n'
    names = list(dict.fromkeys(p["expr"].strip("{}") for p in placeholders))
    names = [n for n in names if n.isidentifier()]
    if not names:
        return body
    filled = ", ".join(f"{n}={n}" for n in names)
    return f"{body}\n\ndef render_{name.lower()}({', '.join(names)}):\n    return {name}.format({filled})\n"


def _function(name: str, text: str, placeholders: list[dict[str, Any]]) -> str:
    """A function that returns an f-string. The record writes its fields as `${...}`."""
    out, at = [], 0
    for one in placeholders:
        expr = one["expr"]
        start = text.index(expr, at)
        out += [_escaped(text[at:start]), "{" + expr[2:-1] + "}"]
        at = start + len(expr)
    out.append(_escaped(text[at:]))
    names = dict.fromkeys(n for p in placeholders for n in _names(p["expr"][2:-1]))
    head = '"""Prompts."""\n\nimport json\nfrom datetime import datetime, timezone\n\n\n'
    quoted = '"""' if '"""' not in text else "'''"
    return f"{head}def {name.lower()}({', '.join(names)}):\n    return f{quoted}{''.join(out)}{quoted}\n"


def _names(expr: str) -> Iterator[str]:
    """Names that an expression reads and that have to be parameters."""
    import ast

    known = {"json", "datetime", "timezone"}
    for node in ast.walk(ast.parse(expr, mode="eval")):
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if isinstance(node, ast.Name) and node.id not in known and not called:
            yield node.id


def _escaped(text: str) -> str:
    return (
        text.replace("\\", "\\\\").replace("{", "{{").replace("}", "}}").replace('"""', r"\"\"\"")
    )


def _literal(text: str) -> str:
    body = text.replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return f'"""{body[:-1]}\\""""' if body.endswith('"') else f'"""{body}"""'


def _places(record: dict[str, Any], text: str) -> dict[int, str]:
    """Lines of the file on which placeholders of the template stand, and how those are written."""
    lines: dict[int, str] = {}
    at = 0
    for one in record["placeholders"]:
        expr = one["expr"][1:] if record["kind"] == "fstring" else one["expr"]
        start = text.find(expr, at)
        if start >= 0:
            at = start + len(expr)
            for line in range(text.count("\n", 0, start) + 1, text.count("\n", 0, at) + 2):
                lines[line] = lines.get(line, "") + expr
    return lines
