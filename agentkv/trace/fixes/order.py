"""Mendings of order: documents, examples and lists stand as a site first wrote them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from agentkv.trace.call import Call, Part, Piece
from agentkv.trace.causes.text import chunks, norm
from agentkv.trace.fixes.base import is_talk, unlike, with_parts, with_pieces, with_text

PLACES = 2048
RANKED = 50_000
"""Texts of one site whose first place is remembered."""


@dataclass(slots=True)
class _Site:
    ranks: dict[Hashable, int] = field(default_factory=dict)

    def sorted(self, keys: Sequence[Hashable]) -> list[int]:
        """Places of `keys` in the order in which they were first seen; new ones behind."""
        for key in keys:
            if len(self.ranks) < RANKED:
                self.ranks.setdefault(key, len(self.ranks))
        return sorted(range(len(keys)), key=lambda i: self.ranks.get(keys[i], RANKED))


class Order:
    """What was there before stands where it first stood; what is new follows behind it."""

    def __init__(self) -> None:
        self._sites: OrderedDict[str, _Site] = OrderedDict()
        self._places: OrderedDict[tuple[str, str, int], str] = OrderedDict()

    def learn(self, call: Call, session: str, group: str) -> None:
        pass

    def mend(self, call: Call, session: str, group: str) -> Call:
        site = self._sites.setdefault(group, _Site())
        self._sites.move_to_end(group)
        while len(self._sites) > PLACES:
            self._sites.popitem(last=False)
        parts: list[Part] = []
        for part in call.parts:
            pieces = _documents(part, site)
            if part.role not in ("assistant", "model", "tool"):
                pieces = [
                    with_text(p, self._text(p.text, (group, part.name, i)))
                    if p.kind == "text" and not p.redacted
                    else p
                    for i, p in enumerate(pieces)
                ]
            parts.append(with_pieces(part, pieces))
        return with_parts(call, _turns(parts, site))

    def _text(self, text: str, place: tuple[str, str, int]) -> str:
        first = self._places.setdefault(place, text)
        self._places.move_to_end(place)
        while len(self._places) > PLACES:
            self._places.popitem(last=False)
        if first == text:
            return text
        head, tail = unlike(first, text)
        middle = _known_first(
            chunks(text[head : len(text) - tail]), chunks(first[head : len(first) - tail])
        )
        return "".join([text[:head], *middle, text[len(text) - tail :]])


def _known_first(new: list[str], first: list[str]) -> list[str]:
    """Chunks of a text in the order of those of the first one; what that had not follows."""
    keys, known = [norm(c) for c in new], [norm(c) for c in first]
    left = Counter(keys) & Counter(known)
    if sum(len(k) * n for k, n in left.items()) * 2 < sum(map(len, keys)) or len(left) < 2:
        return new
    out: list[str] = []
    used: Counter[str] = Counter()
    for key, chunk in zip(known, first, strict=True):
        if used[key] < left[key]:
            used[key] += 1
            out.append(chunk)
    for key, chunk in zip(keys, new, strict=True):
        if left[key] > 0:
            left[key] -= 1
        else:
            out.append(chunk)
    return out


def _documents(part: Part, site: _Site) -> list[Piece]:
    """The part's pieces, its documents in their first order (and blocks of text of a user)."""
    pieces = list(part.pieces)
    if part.role == "tool":
        return pieces
    kinds = {"document", "tool_result"} | ({"text"} if part.kind == "documents" else set())
    places = [i for i, p in enumerate(pieces) if p.kind in kinds]
    if len(places) < 2:
        return pieces
    order = site.sorted([pieces[i].key for i in places])
    out = list(pieces)
    for i, source in zip(places, order, strict=True):
        out[i] = pieces[places[source]]
    return out


def _turns(parts: list[Part], site: _Site) -> list[Part]:
    """Example turns (user, assistant) in front of the last question, in their first order."""
    talk = [i for i, p in enumerate(parts) if is_talk(p)]
    pairs = [
        (a, b)
        for a, b in zip(talk[::2], talk[1::2], strict=False)
        if parts[a].role == "user" and parts[b].role in ("assistant", "model")
    ]
    keys: list[Hashable] = [("turn", parts[a].key, parts[b].key) for a, b in pairs]
    if len(pairs) < 2 or len(set(keys)) != len(keys):
        return parts
    seen = [i for i, k in enumerate(keys) if k in site.ranks]
    order = site.sorted([keys[i] for i in seen])
    site.sorted(keys)
    out = list(parts)
    for place, source in zip(seen, order, strict=True):
        for side in (0, 1):
            out[pairs[place][side]] = parts[pairs[seen[source]][side]]
    return out
