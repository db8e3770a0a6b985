"""A rendered text becomes token ids, from control token to control token.

    ... <|im_start|> | assistant\\n {"name": ...} | <|im_end|> ...
                     ^ anchor      ^ echo         ^ end of the turn
                     |__ stretch _________________|

Where a message gives back an answer of the model unchanged (an *echo*), the tokens that were
sampled take the place of everything up to the end of its turn, control tokens included: what the
template makes of a re-serialised tool call does not matter then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agentkv.engine.text.calls.record import Sampled
from agentkv.engine.text.replay import Anchor, Stretch, StretchCache, Trail
from agentkv.engine.types import IntArray

Control = tuple[int, int, int]
"""A control token of the template: where its text begins and ends, and its id."""


@dataclass(frozen=True, slots=True)
class Place:
    """Characters `[start, end)` of the rendered text that message `message`, an echo, makes up."""

    message: int
    start: int
    end: int
    echo: Sampled


class Walk:
    """One way through a rendered text.

    `ids` int32 `[n]`; `starts` int32 `[n]`, the character of the *rendered* text at which each
    token starts (tokens of an echo start where its answer does); `text`, what the ids stand for;
    `replayed`, ids up to the end of the last output that was fed back; `anchor`, the open end;
    `spliced`, the messages that are echoes.
    """

    def __init__(
        self,
        text: str,
        controls: Sequence[Control],
        namespace: str,
        *,
        stretch: Callable[[str, bool], Stretch],
        sampled: StretchCache,
        turn_ends: frozenset[str],
        places: Sequence[Place] = (),
    ) -> None:
        self._rendered = text
        self._turn_ends = turn_ends
        self._trail = Trail(namespace)
        self._ids: list[IntArray] = [np.zeros(0, np.int32)]
        self._starts: list[IntArray] = [np.zeros(0, np.int32)]
        self._texts: list[str] = []
        self._chars = self._count = 0
        self.replayed = 0
        self.spliced: set[int] = set()
        self.anchor = Anchor(b"", 0, 0)
        by_digest: dict[bytes, list[Place]] = {}
        for place in places:
            by_digest.setdefault(place.echo.digest, []).append(place)
        at = which = 0
        steps = [*controls, (len(text), len(text), -1)]
        while which < len(steps):
            low, high, token = steps[which]
            self.anchor = Anchor(self._trail.digest(), self._chars, self._count)
            here = by_digest.get(self.anchor.digest, ())
            echo = self._echo(here, steps, which, at)
            if echo is not None:
                found_place, which = echo
                self._splice(found_place, at)
                at = steps[which][0]
                continue
            if low > at:
                piece = text[at:low]
                found = sampled.get((self.anchor.digest, piece))
                if found is not None:
                    self.replayed = self._count + len(found.ids)
                else:
                    found = stretch(piece, at == 0)
                self._go(piece, found.ids, found.starts + np.int32(at), control=False)
            if token >= 0:
                ids = np.asarray([token], dtype=np.int32)
                self._go(text[low:high], ids, np.asarray([low], dtype=np.int32), control=True)
            at = high
            which += 1
        self.ids = np.concatenate(self._ids)
        self.starts = np.concatenate(self._starts)
        self.text = "".join(self._texts)

    def _echo(
        self, places: Sequence[Place], steps: Sequence[Control], which: int, at: int
    ) -> tuple[Place, int] | None:
        """The echo that continues the stretch from `at` on, and the step that ends its turn."""
        text = self._rendered
        for place in places:
            echo = place.echo
            begin = at + len(echo.tail)
            if place.message in self.spliced or not place.start <= begin <= place.end:
                continue
            if begin > steps[which][0] or not text.startswith(echo.tail, at):
                continue
            for end in range(which, len(steps)):
                low, high, token = steps[end]
                if token < 0 or high > place.end:
                    break
                if text[low:high].strip() not in self._turn_ends:
                    continue
                # A thought that the template leaves out stays out.
                if echo.answer.reasoning.strip() in text[begin:low]:
                    return place, end
                break
        return None

    def _splice(self, place: Place, at: int) -> None:
        begin = np.int32(at + len(place.echo.tail))
        for piece in place.echo.pieces:
            starts = np.full(len(piece.ids), begin, np.int32)
            self._go(piece.text, piece.ids, starts, control=piece.control)
        self.spliced.add(place.message)
        self.replayed = self._count

    def _go(self, text: str, ids: IntArray, starts: IntArray, *, control: bool) -> None:
        (self._trail.control if control else self._trail.stretch)(text)
        self._ids.append(ids)
        self._starts.append(starts)
        self._texts.append(text)
        self._chars += len(text)
        self._count += len(ids)
