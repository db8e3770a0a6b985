"""Mustache, Handlebars (Dotprompt, Semantic Kernel) and Semantic Kernel's own syntax as pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from agentkv.lint.formats._expression import RANK, Facts, Names, clock, facts, parse
from agentkv.lint.formats._jinja import role_of
from agentkv.lint.formats._jinja_tokens import TemplateError
from agentkv.lint.formats._messages import Item, Message, span
from agentkv.lint.formats._region import Region
from agentkv.lint.names import guess
from agentkv.lint.template import Hole, Piece, Text, Trait

Dialect = Literal["mustache", "handlebars", "dotprompt", "semantic-kernel"]

TAG = re.compile(
    r"(?:(?<!\\)(?P<escape>\\))?(?:\{\{(?P<l>~)?!--(?P<comment>.*?)--(?P<r>~)?\}\}"
    r"|\{\{\{\{(?P<rawname>[\w-]+)\}\}\}\}(?P<raw>.*?)\{\{\{\{/(?P=rawname)\}\}\}\}"
    r"|\{\{\{(?P<triple>[^{}]+)\}\}\}"
    r"|\{\{(?P<lt>~)?(?P<body>(?:\"[^\"]*\"|'[^']*'|[^{}\"']|'(?![^'{}]*'))*?)(?P<rt>~)?\}\})",
    re.DOTALL,
)
_DELIMITERS = re.compile(r"=\s*(?P<open>\S+)\s+(?P<close>\S+)\s*=\Z")
_ARGUMENT = re.compile(r"(?:(?P<key>\w+)\s*=\s*)?(?P<value>\"[^\"]*\"|'[^']*'|\([^()]*\)|[^\s()]+)")
_NAME = re.compile(r"[@$]?[\w.\-/\[\]]+\Z")
_SK_CLOCKS = {
    "date": "date",
    "today": "date",
    "day": "date",
    "month": "date",
    "year": "date",
    "dayofweek": "date",
    "monthnumber": "date",
    "daysago": "date",
    "datematchinglastdayname": "date",
    "hour": "hour",
    "hournumber": "hour",
}
"""Functions of Semantic Kernel's time plug-in that are coarser than seconds."""


@dataclass(slots=True)
class _Section:
    name: str
    kind: str
    start: int
    head: str
    items: list[Item]
    names: Names
    tests: list[Facts]


def read(region: Region, names: Names, dialect: Dialect) -> list[Item]:
    """Items of a text. In Dotprompt `{{role}}` and `{{history}}` begin messages. Raises
    TemplateError where a section has no end."""
    return _Reader(region, names, dialect).read()


class _Reader:
    def __init__(self, region: Region, names: Names, dialect: Dialect) -> None:
        self.region, self.dialect = region, dialect
        self.out: list[Item] = []
        self.stack: list[_Section] = []
        self.names = names
        self.escapes = dialect in ("handlebars", "dotprompt")

    @property
    def into(self) -> list[Item]:
        return self.stack[-1].items if self.stack else self.out

    def read(self) -> list[Item]:
        text, at, eat = self.region.text, 0, False
        for match in TAG.finditer(text):
            if (match["escape"] and self.escapes) or match.start() < at:
                continue
            start = match.start() + len(match["escape"] or "")
            body = (match["body"] or match["triple"] or "").strip()
            left = bool(match["l"] or match["lt"])
            self.text(at, start, eat, left)
            eat = bool(match["r"] or match["rt"])
            at = match.end()
            if match["body"] and (other := _DELIMITERS.match(match["body"].strip())):
                at = self.foreign(at, other["open"], other["close"])
            elif match["raw"] is not None:
                self.into.append(self.region.piece(start, match.end(), match["raw"]))
            elif match["comment"] is None:
                self.tag(start, match.end(), body)
        self.text(at, len(text), eat, False)
        if self.stack:
            raise TemplateError(
                f"`{{{{#{self.stack[-1].head}}}}}` is never closed", self.stack[-1].start
            )
        return _gathered(self.out) if self.dialect == "dotprompt" else self.out

    def foreign(self, at: int, first: str, last: str) -> int:
        """Text behind `{{=<% %>=}}`: its tags are written in other delimiters, until they are set
        back. Gives the place behind it."""
        text = self.region.text
        tag = re.compile(f"{re.escape(first)}(.*?){re.escape(last)}", re.DOTALL)
        for match in tag.finditer(text, at):
            body = match[1].strip()
            self.text(at, match.start(), False, False)
            at = match.end()
            if body.startswith("="):
                return at
            self.tag(match.start(), at, body)
        self.text(at, len(text), False, False)
        return len(text)

    def text(self, start: int, end: int, eat_left: bool, eat_right: bool) -> None:
        text = self.region.text
        if eat_left:
            while start < end and text[start].isspace():
                start += 1
        if eat_right:
            while end > start and text[end - 1].isspace():
                end -= 1
        if start < end:
            value = (
                text[start:end].replace("\\{{", "{{")
                if self.escapes and "\\{{" in text[start:end]
                else None
            )
            self.into.append(self.region.piece(start, end, value))

    def tag(self, start: int, end: int, body: str) -> None:
        if not body or body.startswith("!"):
            return
        mark, rest = body[0], body[1:].strip()
        if mark == "#" or (mark == "^" and rest):
            self.open(start, rest.lstrip("*>").strip(), inverted=mark == "^")
        elif mark == "/":
            self.close(end, rest)
        elif body in ("else", "^") or body.startswith("else "):
            if self.stack and body.startswith("else if"):
                self.stack[-1].tests.append(self.facts(body[7:]))
        elif mark == ">":
            name = rest.split()[0] if rest.split() else "partial"
            self.into.append(
                self.hole(start, end, Facts("build", why=f"partial `{name}`", name=name))
            )
        elif mark == "&":
            self.into.append(self.hole(start, end, self.facts(rest)))
        else:
            self.value(start, end, body)

    def value(self, start: int, end: int, body: str) -> None:
        word, *rest = body.split(None, 1)
        arguments = rest[0] if rest else ""
        if self.dialect == "dotprompt":
            if word == "role":
                self.into.append(
                    Message(role_of(arguments.strip("\"' ")), [], self.region.slice(start, end))
                )
                return
            if word == "history":
                found = Facts("turn", frozenset({"history"}), "{{history}}", True, "history")
                hole = self.hole(start, end, found)
                self.into.append(Message("unknown", [hole], hole.slice, True))
                return
            if word == "section":
                return
            if word == "media":
                link = re.search(r"url\s*=\s*(\S+)", arguments)
                found = self.facts(link[1] if link else arguments)
                self.into.append(
                    self.hole(start, end, replace(found, traits=found.traits | {"image"}))
                )
                return
        if re.fullmatch(r"'[^']*'|\"[^\"]*\"", body):
            self.into.append(self.region.piece(start, end, body[1:-1]))
            return
        self.into.append(self.hole(start, end, self.facts(body)))

    def open(self, start: int, head: str, *, inverted: bool) -> None:
        word, *rest = head.split(None, 1)
        arguments = rest[0] if rest else ""
        if (
            word in ("if", "unless", "each", "with", "ifEquals", "unlessEquals", "eq", "list")
            and arguments
        ):
            target = re.sub(r"\s+as\s+\|.*", "", arguments)
            found = self.facts(target)
            kind = (
                "loop" if word in ("each", "list") else "with" if word == "with" else "conditional"
            )
        elif word == "message":
            role = re.search(r"role\s*=\s*[\"']([^\"']*)", arguments)
            found, kind = Facts("build"), f"message:{role[1] if role else ''}"
        else:
            found = self.facts(head)
            plural = not inverted and (
                word.endswith("s") or bool(found.traits & {"history", "context", "examples"})
            )
            kind = "conditional" if inverted or not plural else "loop"
        scope = self.names.child()
        if kind == "loop" or kind == "with":
            bound = re.search(r"as\s+\|([\w\s]+)\|", arguments)
            for name in ["this", *(bound[1].split() if bound else [])]:
                scope.local[name] = found
            if found.level != "unknown":
                scope.local["*"] = found
        self.stack.append(_Section(word, kind, start, head, [], self.names, [found]))
        self.names = scope

    def close(self, end: int, word: str) -> None:
        if not self.stack or word.split(" ")[0] != self.stack[-1].name:
            raise TemplateError(f"`{{{{/{word}}}}}` closes nothing", end)
        section = self.stack.pop()
        self.names = section.names
        start = section.start
        if section.kind.startswith("message:"):
            pieces = _pieces(section.items)
            self.into.append(
                Message(role_of(section.kind[8:]), pieces, self.region.slice(start, end))
            )
            return
        found = max(section.tests, key=lambda f: RANK[f.level])
        if section.kind == "conditional":
            presence = found.level == "call"
            found = replace(found, traits=frozenset(), level="unknown" if presence else found.level)
        traits: tuple[Trait, ...] = (
            ("loop",)
            if section.kind == "loop"
            else ("conditional",)
            if section.kind == "conditional"
            else ()
        )
        if any(isinstance(i, Message) for i in section.items):
            if section.kind == "loop":
                hole = self.hole(start, end, found, (*traits, "history"), _pieces(section.items))
                self.into.append(Message("unknown", [hole], hole.slice, True))
            else:
                self.into.extend(section.items)
            return
        self.into.append(self.hole(start, end, found, traits, _pieces(section.items)))

    # -- facts ------------------------------------------------------------------------------------

    def facts(self, body: str) -> Facts:
        body = body.strip().lstrip("&")
        if _NAME.match(body):
            return self.name(body)
        if self.dialect == "mustache":
            return facts(body, self.names)
        found = list(_ARGUMENT.finditer(body))
        if not found:
            return facts(body, self.names)
        helper = found[0]["value"]
        timed = self.helper(helper)
        if timed is not None:
            return timed
        values: list[Facts] = []
        for argument in found[1:]:
            value = argument["value"]
            if value.startswith("("):
                values.append(self.facts(value[1:-1]))
            elif value[0] not in "\"'" and not re.fullmatch(r"-?[\d.]+|true|false|null", value):
                values.append(self.name(value))
        level, traits = guess(helper.lstrip("$"))
        values.append(Facts(level, traits, f"helper `{helper}`", False, helper))
        worst = max(values, key=lambda f: RANK[f.level])
        return replace(worst, reads=tuple(dict.fromkeys(r for v in values for r in v.reads)))

    def helper(self, name: str) -> Facts | None:
        """Facts of a helper or plug-in function that is known."""
        plugin, _, function = name.lower().rpartition(".")
        plugin = plugin.rpartition("-")[2] or plugin
        if not plugin and "-" in name:
            plugin, _, function = name.lower().partition("-")
        if plugin in ("time", "timeplugin", "timeskill", "clock", "datetime"):
            grain = _SK_CLOCKS.get(function, "clock")
            traits: frozenset[Trait] = (
                frozenset({"date"})
                if grain == "date"
                else frozenset({"clock", "hour"})
                if grain == "hour"
                else frozenset({"clock"})
            )
            if function in ("timezoneoffset", "timezonename"):
                return Facts("deploy", frozenset(), f"{name}", True, name)
            return Facts("call", traits, name, True, name)
        if function in ("recall", "search") and (plugin or self.dialect == "semantic-kernel"):
            return Facts("turn", frozenset({"context", "score_order"}), name, True, name)
        return clock(parse(f"{name}()"), name)

    def name(self, path: str) -> Facts:
        if path.startswith("@"):
            return Facts("build", why="a loop's position", known=True, name=path)
        clean = re.sub(r"/", ".", path.lstrip("$")).strip(".")
        while clean.startswith(("this.", "..")):
            clean = clean[5:] if clean.startswith("this.") else clean.lstrip(".")
        # `{{time.Date}}` is a function; `{{now}}` may be a variable as well, and its name says enough.
        if (
            self.dialect != "mustache"
            and not path.startswith("$")
            and ("." in clean or "-" in clean)
        ):
            known = self.helper(clean)
            if known is not None:
                return known
        if clean == "":
            return self.names.local.get("this", Facts("unknown", name="this"))
        around = self.names.local.get("*")
        if around is not None and clean.split(".")[0] not in self.names.stability:
            found = replace(around, name=clean, reads=(clean.split(".")[0],))
            return (
                replace(found, traits=found.traits | {"score_text"})
                if clean in ("score", "similarity", "distance")
                else found
            )
        return self.names.look_up(clean)

    def hole(
        self,
        start: int,
        end: int,
        found: Facts,
        traits: Iterable[Trait] = (),
        inner: Iterable[Piece] = (),
    ) -> Hole:
        return Hole(
            expr=self.region.text[start:end],
            name=found.name,
            level=found.level,
            slice=self.region.slice(start, end),
            traits=found.traits | frozenset(traits),
            why=found.why,
            known=found.known,
            example=found.example,
            reads=found.reads,
            inner=tuple(inner),
        )


def _pieces(items: Iterable[Item]) -> list[Piece]:
    out: list[Piece] = []
    for item in items:
        if isinstance(item, Message):
            out += item.pieces
        else:
            out.append(item)
    return out


def _gathered(items: list[Item]) -> list[Item]:
    """Dotprompt: everything behind a `{{role}}` belongs to its message."""
    out: list[Item] = []
    current: Message | None = None
    for item in items:
        if isinstance(item, Message):
            out.append(item)
            current = None if item.placeholder else item
        elif current is not None:
            current.pieces.append(item)
        elif isinstance(item, Text) and not item.value.strip():
            if out and isinstance(out[-1], Message):
                continue  # blank lines behind the history
            out.append(item)
        else:
            # Behind the history a message of the user's begins; in front of every role all is loose.
            current = Message("user", [item]) if any(isinstance(i, Message) for i in out) else None
            out.append(current if current is not None else item)
    for item in out:
        if isinstance(item, Message) and not item.placeholder:
            inside = span(item.pieces)
            if inside is not None and item.slice is not None:
                item.slice = type(inside)(item.slice.start, max(item.slice.end, inside.end))
            elif inside is not None:
                item.slice = inside
    return out
