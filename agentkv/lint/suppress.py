"""Comments of the user: findings that are to be ignored, and levels that are stated in place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agentkv.lint.finding import Finding, Fix
from agentkv.lint.rule import matching
from agentkv.lint.source import Edit, Slice, Source
from agentkv.lint.template import (
    Document,
    Level,
    Part,
    Piece,
    Request,
    Suppression,
    Template,
    Text,
)

CODE, NAME = "KV001", "unused-suppression"


def stated(document: Document, source: Source) -> Document:
    """The document with the levels that `agentkv: stable=LEVEL` comments give to their lines."""
    levels = {
        line: s.stable
        for s in document.suppressions
        if s.stable is not None
        for line in lines(s, source)
    }
    if not levels:
        return document
    whole = next((s.stable for s in document.suppressions if s.stable and s.whole_file), None)
    redo = _Stated(levels, whole, source)
    return replace(
        document,
        templates=tuple(redo.template(t) for t in document.templates),
        requests=tuple(redo.request(r) for r in document.requests),
    )


@dataclass(slots=True)
class _Stated:
    levels: dict[int, Level]
    whole: Level | None
    source: Source

    def level(self, *slices: Slice | None) -> Level | None:
        for where in slices:
            if where is not None:
                first = self.source.position(where.start).line
                last = self.source.position(where.end).line
                for line in range(first, last + 1):
                    if line in self.levels:
                        return self.levels[line]
        return self.whole

    def template(self, template: Template) -> Template:
        return replace(template, parts=tuple(self.part(p) for p in template.parts))

    def part(self, part: Part) -> Part:
        return replace(part, pieces=tuple(self.piece(p) for p in part.pieces))

    def piece(self, piece: Piece) -> Piece:
        if isinstance(piece, Text):
            return piece
        inner = tuple(self.piece(p) for p in piece.inner)
        # A section spans many lines; only a comment on its first line is about all of it.
        where = piece.slice
        if inner and where is not None:
            where = Slice(where.start, where.start)
        level = self.level(where, piece.defined_at)
        if level is None:
            return replace(piece, inner=inner) if inner else piece
        return replace(piece, inner=inner, level=level, known=True, why="a comment says so")

    def request(self, request: Request) -> Request:
        template = self.template(request.template) if request.template is not None else None
        tools = request.tools
        if tools is not None and (level := self.level(tools.slice)) is not None:
            tools = replace(tools, level=level)
        settings = tuple(
            replace(s, level=level) if (level := self.level(s.slice)) is not None else s
            for s in request.settings
        )
        return replace(request, template=template, tools=tools, settings=settings)


def lines(suppression: Suppression, source: Source) -> set[int]:
    """The lines that a comment covers: its own, and the next line of text if it stands alone."""
    covered = {suppression.line}
    if suppression.alone:
        last = source.position(suppression.slice.end).line
        covered.update(range(suppression.line, last + 1))
        for line in range(last + 1, source.lines + 1):
            covered.add(line)
            text = source.line_text(line).strip()
            if text and not text.startswith(("#", "{#", "{{!", "<!--", "//")):
                break
    return covered


@dataclass(slots=True)
class Split:
    """What comments leave of the findings. `used`: by suppression, the codes that it caught."""

    kept: list[Finding] = field(default_factory=list)
    suppressed: list[Finding] = field(default_factory=list)
    used: dict[Suppression, set[str]] = field(default_factory=dict)


def split(findings: Iterable[Finding], document: Document, source: Source) -> Split:
    """Findings that no comment ignores, and those that one does."""
    comments = [s for s in document.suppressions if s.stable is None]
    covered = {s: lines(s, source) for s in comments}
    codes = {s: _codes(s.codes) for s in comments}
    out = Split()
    for finding in findings:
        about = _lines_of(finding, source)
        hits = [
            s
            for s in comments
            if (s.whole_file or covered[s] & about) and (not s.codes or finding.code in codes[s])
        ]
        (out.suppressed if hits else out.kept).append(finding)
        for s in hits:
            out.used.setdefault(s, set()).add(finding.code)
    return out


def _lines_of(finding: Finding, source: Source) -> set[int]:
    """Lines where a comment about a finding may stand: those of the slot, and the first and the
    last line of its prompt, since inside a string there are no comments."""
    first = source.position(finding.slice.start).line
    about = set(range(first, source.position(finding.slice.end).line + 1))
    owner = finding.template or finding.request
    if owner is not None:
        about.add(source.position(owner.slice.start).line)
        about.add(source.position(owner.slice.end).line)
    return about


def _codes(words: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for word in words:
        try:
            found.update(rule.code for rule in matching(word))
        except ValueError:
            continue
    return found


def unused(
    document: Document, source: Source, used: dict[Suppression, set[str]], ran: frozenset[str]
) -> Iterator[Finding]:
    """A `KV001` finding for each comment that ignores nothing, as far as the rules that `ran` tell."""
    for s in document.suppressions:
        if s.stable is not None:
            continue
        caught = used.get(s, set())
        idle, unknown = [], []
        for word in s.codes:
            meant = _codes([word])
            if not meant:
                unknown.append(word)
            elif meant <= ran and not meant & caught:
                idle.append(word)
        if not s.codes and not caught and _everything() <= ran:
            message = "the comment ignores findings, and there are none"
        elif idle or unknown:
            parts = [f"there is no finding of {', '.join(idle)}"] if idle else []
            parts += [f"there is no rule {', '.join(unknown)}"] if unknown else []
            message = f"the comment ignores nothing: {'; '.join(parts)}"
        else:
            continue
        yield Finding(
            code=CODE,
            name=NAME,
            slice=s.slice,
            message=message,
            severity="info",
            slot=f"comment {' '.join(s.codes)} {s.reason}".strip(),
            fix=_without(s, [*idle, *unknown], document, source),
        )


def _everything() -> set[str]:
    return {rule.code for rule in matching("default")} - {CODE}


def _without(s: Suppression, idle: list[str], document: Document, source: Source) -> Fix | None:
    """The comment with only the codes that are needed, or no comment."""
    text = source[s.slice]
    left = [c for c in s.codes if c not in idle]
    if left:
        shorter = re.sub(r"\[[^\]]*\]", f"[{', '.join(left)}]", text, count=1)
        return Fix(
            applicability="safe",
            message=f"keep only {', '.join(left)}",
            edits=(Edit(s.slice, shorter),),
        )
    if text.startswith("{#-") or text.endswith("-#}") or "~" in text[:4] + text[-4:]:
        return Fix(
            applicability="display",
            message="remove the comment",
            refused="it trims the white space around it, so that removing it changes the prompt",
        )
    where = s.slice
    if text.startswith("#"):
        # A comment of Python or YAML: what stands before it on the line is not part of any text.
        start = where.start
        while start > 0 and source.text[start - 1] in " \t":
            start -= 1
        end = where.end
        if start == 0 or source.text[start - 1] == "\n":
            newline = re.compile(r"\r?\n").match(source.text, end)
            end = newline.end() if newline else end
        where = Slice(start, end)
    return Fix(applicability="safe", message="remove the comment", edits=(Edit(where, ""),))
