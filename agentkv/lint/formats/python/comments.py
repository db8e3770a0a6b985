"""`# agentkv: ...` comments, read by the tokenizer so that strings never count."""

from __future__ import annotations

import io
import re
import tokenize
from typing import cast, get_args

from agentkv.lint.formats.python.offsets import Offsets
from agentkv.lint.source import BOM, Slice
from agentkv.lint.template import Level, Suppression

_MARK = re.compile(r"#\s*agentkv:\s*(?P<rest>.*)$", re.IGNORECASE)
_IGNORE = re.compile(
    r"(?P<word>ignore(?:-file)?)\s*(?:\[(?P<codes>[^\]]*)\])?\s*(?P<why>.*)$", re.IGNORECASE
)
_STABLE = re.compile(r"stable\s*=\s*(?P<level>[a-z]+)\s*(?P<why>.*)$", re.IGNORECASE)


def suppressions(text: str) -> tuple[Suppression, ...]:
    """Every suppression in a Python text, in order. A text that cannot be tokenized has those
    that come before the place where it breaks."""
    if "agentkv:" not in text.lower():
        return ()
    shift = 1 if text.startswith(BOM) else 0
    # The tokenizer counts lines as the parser does: CR LF and CR are one line break each.
    plain = re.sub(r"\r\n?", "\n", text[shift:])
    offsets = Offsets(text, shift)
    found: list[Suppression] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(plain).readline):
            if token.type == tokenize.COMMENT:
                one = _read(token, offsets)
                if one is not None:
                    found.append(one)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    return tuple(found)


def _read(token: tokenize.TokenInfo, offsets: Offsets) -> Suppression | None:
    mark = _MARK.search(token.string)
    if mark is None:
        return None
    line, column = token.start
    start = offsets.row(line) + column
    place = Slice(start, start + len(token.string.rstrip()))
    alone = token.line[:column].strip() == ""
    stable = _STABLE.match(mark["rest"])
    if stable is not None:
        level = stable["level"].lower()
        if level not in get_args(Level):
            return None
        return Suppression(
            line=line,
            codes=(),
            reason=stable["why"].strip(),
            slice=place,
            alone=alone,
            stable=cast(Level, level),
        )
    ignore = _IGNORE.match(mark["rest"])
    if ignore is None:
        return None
    codes = tuple(c.strip() for c in (ignore["codes"] or "").split(",") if c.strip())
    return Suppression(
        line=line,
        codes=codes,
        reason=ignore["why"].strip(" -:—"),
        slice=place,
        alone=alone,
        whole_file=ignore["word"].lower() == "ignore-file",
    )
