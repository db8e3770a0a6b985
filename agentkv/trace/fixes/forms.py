"""Mendings of forms: white space, Unicode, formats of a place, JSON. What a text says stays."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable

from agentkv.trace.call import Call, Part, Piece
from agentkv.trace.causes.text import diff
from agentkv.trace.causes.values import blanks_out
from agentkv.trace.fixes.base import is_talk, unlike, with_parts, with_pieces, with_text

PLACES = 4096
TEXTS = 20_000
TEXT_KINDS = ("text", "document", "tool_result")


class Forms:
    """A text keeps the form that its place first had: changes of these kinds are taken back.

    They are found by the same comparison that finds them as causes; `kinds` are its kinds of edits.
    """

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds
        self._first: OrderedDict[tuple[str, str, int], str] = OrderedDict()
        self._made: OrderedDict[tuple[str, str, int, str], Piece] = OrderedDict()

    def learn(self, call: Call, session: str, group: str) -> None:
        pass

    def mend(self, call: Call, session: str, group: str) -> Call:
        talked = False
        parts: list[Part] = []
        for part in call.parts:
            # What opens a prompt is the same text for all of a site; later messages are a session's.
            owner = session if is_talk(part) and talked else group
            talked = talked or is_talk(part)
            pieces = [self._piece(p, owner, part.name, i) for i, p in enumerate(part.pieces)]
            parts.append(with_pieces(part, pieces))
        return with_parts(call, parts)

    def _piece(self, piece: Piece, owner: str, name: str, index: int) -> Piece:
        if piece.kind not in TEXT_KINDS or piece.redacted or not piece.text:
            return piece
        place = (owner, name, index)
        first = self._first.setdefault(place, piece.text)
        self._first.move_to_end(place)
        while len(self._first) > PLACES:
            self._first.popitem(last=False)
        if first == piece.text:
            return piece
        found = self._made.get((*place, piece.key))
        if found is None:
            found = self._made[(*place, piece.key)] = with_text(
                piece, self._back(first, piece.text)
            )
            while len(self._made) > TEXTS:
                self._made.popitem(last=False)
        return found

    def _back(self, first: str, text: str) -> str:
        head, tail = unlike(first, text)
        old, new = first[head : len(first) - tail], text[head : len(text) - tail]
        out = new
        for edit in reversed(diff(old, new).edits if old and new else ()):
            if edit.kind in self._kinds and old[edit.old_at : edit.old_end] == edit.was:
                out = out[: edit.at] + edit.was + out[edit.end :]
        if blanks_out(old) == blanks_out(new) and "whitespace" in self._kinds:
            out = old  # also where one of them is all blanks
        return text[:head] + out + text[len(text) - tail :]


class Json:
    """JSON inside texts and results with sorted keys."""

    def learn(self, call: Call, session: str, group: str) -> None:
        pass

    def mend(self, call: Call, session: str, group: str) -> Call:
        return each_text(call, sorted_json)


def sorted_json(text: str) -> str:
    """A text whose pieces of JSON have sorted keys."""
    decoder = json.JSONDecoder()
    out: list[str] = []
    at = 0
    for match in re.finditer(r"[\[{]", text):
        if match.start() < at:
            continue
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, (dict, list)) and end - match.start() > 8:
            out += [text[at : match.start()], json.dumps(value, sort_keys=True)]
            at = end
    return "".join(out) + text[at:]


def each_text(call: Call, change: Callable[[str], str]) -> Call:
    """A copy of a call whose texts were changed."""
    return with_parts(
        call,
        [
            with_pieces(
                part,
                [
                    with_text(p, change(p.text)) if p.kind in TEXT_KINDS and not p.redacted else p
                    for p in part.pieces
                ],
            )
            for part in call.parts
        ],
    )
