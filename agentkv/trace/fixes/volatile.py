"""The mending of order between what changes and what stays: what changes goes behind."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

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

PLACES = 512
SITES = 256
COUNTED = 20_000
SHORTEST = 80
"""Characters of text that stay, below which nothing is worth moving."""
FIXED = 0.5
"""Share of a site's calls that have a piece which is called fixed."""


Place = tuple[int, int]
"""Number of the part, and of the piece in it."""


@dataclass(slots=True)
class _Site:
    calls: int = 0
    pieces: Counter[str] = field(default_factory=Counter)


class Volatile:
    """Of the text in front of the conversation: values that change inside a text go to the end of
    the last user message, and so do whole pieces with a fixed one behind them. In a first message
    that also holds fixed text, that comes first."""

    def __init__(self) -> None:
        self._skeletons: OrderedDict[tuple[str, str], Skeleton] = OrderedDict()
        self._sites: OrderedDict[str, _Site] = OrderedDict()
        self._last: OrderedDict[tuple[str, Hashable], str] = OrderedDict()
        self.kept: OrderedDict[tuple[str, Hashable], list[int]] = OrderedDict()
        """How often the value at a place of a site changed within a session, and did not."""

    def learn(self, call: Call, session: str, group: str) -> None:
        site = self._sites.setdefault(group, _Site())
        self._sites.move_to_end(group)
        while len(self._sites) > SITES:
            self._sites.popitem(last=False)
        site.calls += 1
        for number, index in _leading(call):
            piece = call.parts[number].pieces[index]
            if len(site.pieces) < COUNTED or piece.key in site.pieces:
                site.pieces[piece.key] += 1
            place = _place(call, number, index)
            if place is None:
                continue
            found = self._skeletons.get((group, place))
            if found is None:
                self._skeletons[(group, place)] = Skeleton(piece.text)
                while len(self._skeletons) > PLACES:
                    self._skeletons.popitem(last=False)
            else:
                found.add(piece.text)

    def mend(self, call: Call, session: str, group: str) -> Call:
        lead = _leading(call)
        pieces = {at: call.parts[at[0]].pieces[at[1]] for at in lead}
        values: dict[Place, list[tuple[int, str]]] = {}
        for at, piece in pieces.items():
            split = self._split(call, at, piece, group)
            if split is not None:
                pieces[at], values[at] = with_text(piece, split[0]), split[1]
        stays = [at for at in lead if at in values or self._fixed(pieces[at], group)]
        last = max((at for at in stays if pieces[at].size >= SHORTEST), default=(-1, -1))
        moved = {at for at in lead if at not in stays and at < last}
        if not moved and not any(values.values()):
            return call
        whose = _Owner(self, session, group)
        behind: list[Piece] = []  # behind the instructions: the session's own
        tail: list[Piece] = []  # at the end of the last message: of this call only
        late: list[Part] = []
        parts: list[Part] = []
        systems = 0
        for number, part in enumerate(call.parts):
            kept: list[Piece] = []
            ends: list[Piece] = []
            for index, piece in enumerate(part.pieces):
                at = (number, index)
                if at in moved:
                    constant = whose.keeps((*at, -1), piece.key)
                    stay = ends if is_talk(part) else behind if constant else tail
                    stay.append(piece)
                    continue
                kept.append(pieces.get(at, piece))
                for gap, value in values.get(at, ()):
                    constant = whose.keeps((*at, gap), value)
                    stay = (ends if is_talk(part) else behind) if constant else tail
                    stay.append(Piece("text", value))
            if not kept and is_talk(part):
                late.append(part)  # all of it changes: it follows the fixed message behind it
            elif kept:
                parts.append(with_pieces(part, [*kept, *ends]))
                systems = len(parts) if is_system(part) and not is_talk(part) else systems
            if number == last[0]:
                parts += late
                late = []
        parts += late
        if behind and systems:
            final = parts[systems - 1]
            parts[systems - 1] = with_pieces(final, [*final.pieces, *behind])
        elif behind:
            tail = [*behind, *tail]
        return with_parts(call, add_to_tail(parts, tail) if tail else parts)

    def seen_again(self, key: Hashable, session: str, value: str) -> bool | None:
        """Whether a place holds what it held in the session's last call; None in its first."""
        before = self._last.pop((session, key), None)
        self._last[(session, key)] = value
        while len(self._last) > COUNTED:
            self._last.popitem(last=False)
        return None if before is None else before == value

    def _split(
        self, call: Call, at: Place, piece: Piece, group: str
    ) -> tuple[str, list[tuple[int, str]]] | None:
        place = _place(call, *at)
        skeleton = self._skeletons.get((group, place)) if place else None
        if skeleton is None or not skeleton.changes:
            return None
        split = skeleton.split(piece.text)
        return split if split is not None and len(split[0]) >= SHORTEST else None

    def _fixed(self, piece: Piece, group: str) -> bool:
        site = self._sites.get(group)
        if site is None:
            return False
        return site.pieces[piece.key] >= max(2, FIXED * site.calls)


@dataclass(slots=True)
class _Owner:
    """Whether values are a session's own, as far as the log has shown up to now."""

    mending: Volatile
    session: str
    group: str

    def keeps(self, place: Hashable, value: str) -> bool:
        again = self.mending.seen_again(place, self.session, value)
        counts = self.mending.kept.setdefault((self.group, place), [0, 0])
        while len(self.mending.kept) > COUNTED:
            self.mending.kept.popitem(last=False)
        if again is not None:
            counts[again] += 1
        return counts[True] > 4 * counts[False]


def _leading(call: Call) -> list[Place]:
    """Places (part, piece) of what stands in front of the first answer, tools aside."""
    out: list[Place] = []
    for number, part in enumerate(call.parts):
        if is_talk(part) and part.role != "user":
            break
        if part.kind != "tools":
            out += [(number, i) for i in range(len(part.pieces))]
    return out


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
