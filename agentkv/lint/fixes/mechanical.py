"""Fixes that cannot change the meaning, by the name of the rule that they belong to."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding, Fix
from agentkv.lint.fixes import breakpoints, markers, sorting
from agentkv.lint.fixes.move import Refused
from agentkv.lint.fixes.strips import tape_of
from agentkv.lint.fixes.tape import Uncuttable
from agentkv.lint.source import BOM, Edit, Slice, Source
from agentkv.lint.template import Document, Hole, Text

Mechanical = Callable[[Document, Finding, Source, Context], Fix | None]


def _boundary(document: Document, finding: Finding, source: Source, context: Context) -> Fix | None:
    """A line end between static text and a value, where the text ends a sentence and the value is
    all that follows on its line."""
    template, at = finding.template, finding.at
    if template is None or at is None or not at[1]:
        return None
    part = template.parts[at[0]]
    hole, ahead = part.pieces[at[1]], part.pieces[at[1] - 1]
    if not isinstance(hole, Hole) or hole.slice is None or not isinstance(ahead, Text):
        return None
    if ahead.value[-1:] not in (".", "!", "?"):
        raise Refused(
            "the text ahead of it does not end a sentence: a line end could change what it says."
        )
    behind = part.pieces[at[1] + 1] if at[1] + 1 < len(part.pieces) else None
    if behind is not None and not (isinstance(behind, Text) and behind.value.startswith("\n")):
        raise Refused("its line goes on behind it.")
    try:
        tape = tape_of(source, document.format, template, part)
    except Uncuttable as error:
        raise Refused(str(error)) from error
    spot = Slice(hole.slice.start, hole.slice.start)
    return Fix(
        applicability="safe",
        message="End the text in front of it with a line end",
        edits=(Edit(spot, tape.encode("\n")),),
        proof=("one line end is added, no word is changed",),
    )


def _unicode(document: Document, finding: Finding, source: Source, context: Context) -> Fix | None:
    """A byte order mark goes; a letter and its accent become one character."""
    at = finding.slice
    found = source[at]
    if found == BOM:
        return Fix(
            applicability="safe",
            message="Remove the byte order mark",
            edits=(Edit(at, ""),),
            proof=("it is not seen, and no word is changed",),
        )
    if len(found) == 1 and unicodedata.combining(found) and at.start:
        pair = Slice(at.start - 1, at.end)
        while pair.end < len(source.text) and unicodedata.combining(source.text[pair.end]):
            pair = Slice(pair.start, pair.end + 1)
        made = unicodedata.normalize("NFC", source[pair])
        return Fix(
            applicability="safe",
            message="Write the letter as one character (NFC)",
            edits=(Edit(pair, made),),
            proof=("both are the same letter by Unicode",),
        )
    return None


def _line_ends(
    document: Document, finding: Finding, source: Source, context: Context
) -> Fix | None:
    """CRLF becomes LF, outside code fences."""
    text = source[finding.slice]
    edits = []
    fenced = False
    at = finding.slice.start
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            at += len(line)
            continue
        if line.endswith("\r\n") and not fenced:
            end = at + len(line)
            edits.append(Edit(Slice(end - 2, end), "\n"))
        at += len(line)
    if not edits or document.format == "python":
        return None
    return Fix(
        applicability="safe",
        message="End all lines alike (LF)",
        edits=tuple(edits),
        proof=("only line ends differ",),
    )


def _plain(found: Callable[[Document, Finding, Source], Fix | None]) -> Mechanical:
    return lambda document, finding, source, context: found(document, finding, source)


MECHANICAL: dict[str, Mechanical] = {
    "set-iteration": _plain(sorting.set_iteration),
    "unsorted-listing": _plain(sorting.listing),
    "unsorted-json": _plain(sorting.json_keys),
    "groupby-tie-order": _plain(sorting.ties),
    "tool-order-unstable": _plain(sorting.tools),
    "token-boundary-merge": _boundary,
    "unicode-drift": _unicode,
    "whitespace-drift": _line_ends,
    "breakpoint-missing": markers.missing,
    "breakpoint-limits": breakpoints.limits,
    "lookback-exceeded": breakpoints.lookback,
    "breakpoint-after-dynamic": markers.after_dynamic,
    "cache-key-misuse": markers.key,
}
