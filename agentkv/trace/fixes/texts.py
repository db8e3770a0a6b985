"""Mendings of texts: what changes goes to the tail, white space and JSON in one form, blocks in the
order in which they first stood."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import OrderedDict

from agentkv.trace.call import Call, Part, Piece
from agentkv.trace.fixes.base import (
    add_to_tail,
    is_system,
    is_talk,
    with_parts,
    with_pieces,
    with_text,
)
from agentkv.trace.fixes.skeleton import Skeleton

GROUPS = 512
SHORTEST = 80
"""Characters of a text below which nothing of it is worth moving."""


class Volatile:
    """Values that change inside a text go to the end of the last user message."""

    def __init__(self) -> None:
        self._skeletons: OrderedDict[tuple[str, str], Skeleton] = OrderedDict()

    def learn(self, call: Call, session: str, group: str) -> None:
        for place, piece in _texts(call):
            key = (group, place)
            found = self._skeletons.get(key)
            if found is None:
                self._skeletons[key] = Skeleton(piece.text)
                while len(self._skeletons) > GROUPS:
                    self._skeletons.popitem(last=False)
            else:
                found.add(piece.text)

    def mend(self, call: Call, session: str, group: str) -> Call:
        moved: list[str] = []
        parts: list[Part] = []
        for number, part in enumerate(call.parts):
            pieces: list[Piece] = []
            for index, piece in enumerate(part.pieces):
                place = _place(call, number, index)
                skeleton = self._skeletons.get((group, place)) if place else None
                split = skeleton.split(piece.text) if skeleton and skeleton.changes else None
                if split is not None and len(split[0]) >= SHORTEST:
                    moved += split[1]
                    piece = with_text(piece, split[0])
                pieces.append(piece)
            parts.append(with_pieces(part, pieces))
        if moved:
            parts = add_to_tail(parts, "\n".join(moved))
        return with_parts(call, parts)


def _place(call: Call, number: int, index: int) -> str | None:
    """A name for a text that comes back in every call of a site: a system text, or the first
    message."""
    part = call.parts[number]
    if part.pieces[index].kind != "text" or part.pieces[index].redacted:
        return None
    if is_system(part):
        same = sum(is_system(p) for p in call.parts[:number])
        return f"system {same} {index}"
    talk = [i for i, p in enumerate(call.parts) if is_talk(p)]
    if talk and talk[0] == number and part.role == "user":
        return f"first {index}"
    return None


def _texts(call: Call) -> list[tuple[str, Piece]]:
    out = []
    for number, part in enumerate(call.parts):
        for index, piece in enumerate(part.pieces):
            place = _place(call, number, index)
            if place is not None:
                out.append((place, piece))
    return out


class Whitespace:
    """One line end, no trailing blanks, one blank in a row, NFC, no invisible characters."""

    def learn(self, call: Call, session: str, group: str) -> None:
        pass

    def mend(self, call: Call, session: str, group: str) -> Call:
        return _each_text(call, normal)


_INVISIBLE = re.compile("[\u200b\u200c\u200d\u2060\ufeff\u00ad]")
_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "\u00a0": " ", "\u202f": " "})


def normal(text: str) -> str:
    """A text in the one form that `Whitespace` gives it."""
    text = unicodedata.normalize("NFC", _INVISIBLE.sub("", text)).translate(_QUOTES)
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in text.splitlines())
    return re.sub(r"\n{2,}", "\n\n", "\n".join(lines)).strip()


class Json:
    """JSON inside texts and results with sorted keys."""

    def learn(self, call: Call, session: str, group: str) -> None:
        pass

    def mend(self, call: Call, session: str, group: str) -> Call:
        return _each_text(call, _sorted_json)


def _sorted_json(text: str) -> str:
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


class Blocks:
    """Paragraphs (documents, examples, lists) in the order in which a site first wrote them; new
    ones behind. Documents that are pieces of their own, too, and pairs of example messages."""

    def __init__(self) -> None:
        self._ranks: OrderedDict[str, dict[str, int]] = OrderedDict()

    def learn(self, call: Call, session: str, group: str) -> None:
        pass

    def mend(self, call: Call, session: str, group: str) -> Call:
        ranks = self._ranks.setdefault(group, {})
        self._ranks.move_to_end(group)
        while len(self._ranks) > GROUPS:
            self._ranks.popitem(last=False)
        parts: list[Part] = []
        for part in call.parts:
            pieces = list(part.pieces)
            documents = [i for i, p in enumerate(pieces) if p.kind in ("document", "tool_result")]
            if len(documents) > 1 and part.role != "tool":
                order = _sticky([pieces[i].key for i in documents], ranks)
                known = {pieces[i].key: pieces[i] for i in documents}
                for i, key in zip(documents, order, strict=True):
                    pieces[i] = known[key]
            pieces = [
                with_text(p, _reordered(p.text, ranks))
                if p.kind == "text" and not p.redacted and part.role != "assistant"
                else p
                for p in pieces
            ]
            parts.append(with_pieces(part, pieces))
        return with_parts(call, _pairs(parts, ranks))


def _sticky(keys: list[str], ranks: dict[str, int]) -> list[str]:
    for key in keys:
        if len(ranks) < 50_000:
            ranks.setdefault(key, len(ranks))
    return sorted(keys, key=lambda k: ranks.get(k, 1 << 30))


def _reordered(text: str, ranks: dict[str, int]) -> str:
    for mark in ("\n\n", "\n"):
        blocks = text.split(mark)
        if len(blocks) < 3:
            continue
        movable = [i for i, b in enumerate(blocks) if len(b.strip()) >= 12]
        known = [i for i in movable if mark + _body(blocks[i]) in ranks]
        order = sorted(known, key=lambda i: ranks[mark + _body(blocks[i])])
        out = list(blocks)
        for place, source in zip(known, order, strict=True):
            out[place] = _numbered_as(blocks[source], blocks[place])
        for i in movable:
            if len(ranks) < 50_000:
                ranks.setdefault(mark + _body(blocks[i]), len(ranks))
        text = mark.join(out)
    return text


_NUMBER = re.compile(r"^(\W*(?:\w+[ =\"#]*){0,2}?\W?)(\d{1,3})(?=\W|$)")
"""The number of a block, where it stands at its head: `[3]`, `3.`, `Document 3`, `index="3"`."""


def _body(block: str) -> str:
    """A block without its number, which only says where it stands."""
    return _NUMBER.sub(r"\1#", block.strip(), count=1)


def _numbered_as(block: str, place: str) -> str:
    """A block with the number of the block in whose place it comes."""
    mine, theirs = _NUMBER.match(block), _NUMBER.match(place)
    if mine is None or theirs is None:
        return block
    return block[: mine.start(2)] + theirs.group(2) + block[mine.end(2) :]


def _pairs(parts: list[Part], ranks: dict[str, int]) -> list[Part]:
    """Example turns (user, assistant) in front of the last question, in their first order."""
    talk = [i for i, p in enumerate(parts) if is_talk(p)]
    pairs = [
        (a, b)
        for a, b in zip(talk[::2], talk[1::2], strict=False)
        if parts[a].role == "user" and parts[b].role == "assistant"
    ]
    if len(pairs) < 2:
        return parts
    keys = ["pair" + parts[a].key + parts[b].key for a, b in pairs]
    if len(set(keys)) != len(keys):
        return parts
    seen = [i for i, k in enumerate(keys) if k in ranks]
    order = sorted(seen, key=lambda i: ranks[keys[i]])
    for key in keys:
        if len(ranks) < 50_000:
            ranks.setdefault(key, len(ranks))
    out = list(parts)
    for place, source in zip(seen, order, strict=True):
        out[pairs[place][0]], out[pairs[place][1]] = (
            parts[pairs[source][0]],
            parts[pairs[source][1]],
        )
    return out


def _each_text(call: Call, change: object) -> Call:
    assert callable(change)
    return with_parts(
        call,
        [
            with_pieces(
                part,
                [
                    with_text(p, change(p.text))
                    if p.kind in ("text", "document", "tool_result") and not p.redacted
                    else p
                    for p in part.pieces
                ],
            )
            for part in call.parts
        ],
    )
