"""Where a passage would stand well: behind what lasts longer, ahead of what closes the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.lint.fixes import guards
from agentkv.lint.fixes.passage import BLOCK_WORDS, LABEL_WORDS, WORD, Passage
from agentkv.lint.fixes.units import (
    blocks,
    spoken,
)
from agentkv.lint.spot import effective

_DOCUMENT_WORDS = 200
_LEAST = 1.0
_HIDDEN = 20.0
"""Words that a slot has to pass to be worth a move while another slot still stands before them."""


class Placed(Passage):
    """A passage and the places that it could have in its message."""

    @property
    def _open_ended(self) -> bool:
        """Whether the message ends where the lines end."""
        return not self.outer and not self.beside[1].strip()

    def _targets(self) -> list[int]:
        """Units behind which the passage would be well placed, best first."""
        n = len(self.units)
        at, words = n - 1, 0
        fast = self._fast_units()
        while at >= self.last:
            unit = self.units[at]
            text = self.shown.text(unit.start, unit.end)
            if (
                guards.pinned(text, at == n - 1 and self._open_ended)
                and words <= guards.PINNED_WORDS
            ):
                words += self._static(unit.start, unit.end)
            elif at not in fast:
                break
            at -= 1
        while at >= self.last and at + 1 < n and self._wrapped(at):
            at -= 1
        if at < self.last:
            return []
        found = [at]
        for more in range(at + 1, n):
            text = self.shown.text(self.units[more].start, self.units[more].end)
            if guards.pinned(text, more == n - 1 and self._open_ended):
                break
            if more + 1 == n or not self._wrapped(more):
                found.append(more)
        return found

    def _gains(self, target: int) -> bool:
        """Whether less is computed again once the passage ends at `target`. A fix makes this sum
        smaller, or, where another slot in front of the same text hides what this one costs, the sum
        of what each would cost without the others. So no two fixes undo each other for ever."""
        whole = [(0, len(self.tape.text))]
        moved = [
            (0, self.start),
            (self.stop, target),
            (self.start, self.end),
            (target, len(self.tape.text)),
        ]
        before, after = self._again(whole), self._again(moved)
        if after < before - _LEAST:
            return True
        own = self._static(self.start, self.end)
        return (
            own <= LABEL_WORDS
            and after <= before + own
            and self._again(moved, each=True) < self._again(whole, each=True) - _HIDDEN
        )

    def _again(self, order: Sequence[tuple[int, int]], *, each: bool = False) -> float:
        """Words behind what changes, each times the share of calls in which it does; with `each`,
        for every slot as if it were the only one."""
        total, worst, asked = 0.0, 0.0, False
        holes = sorted(self.holes.items())
        for start, end in order:
            at = start
            for (a, b), hole in holes:
                if a < start or b > end:
                    continue
                total += worst * len(WORD.findall(self.tape.text[at:a]))
                at = b
                level, traits = effective(hole, self.context)
                if level in ("build", "deploy"):
                    total += worst * len(WORD.findall(spoken(hole, "")))
                    continue
                if "context" in traits and "question" not in traits:
                    total += _DOCUMENT_WORDS * (worst if asked else 0.0)
                asked = asked or "question" in traits
                share = self.context.traffic.share(level)
                worst = worst + share if each else max(worst, share)
            total += worst * len(WORD.findall(self.tape.text[at:end]))
        return total

    def _wrapped(self, index: int) -> bool:
        """Whether a sentence goes on from one unit into the next."""
        a, b = self.units[index], self.units[index + 1]
        return guards.continues(self.shown.text(a.start, a.stop), self.shown.text(b.start, b.end))

    def _fast_units(self) -> set[int]:
        """Units that change as often as the passage, with the tags, labels and headings that are
        there for them only."""
        found = {i for i, u in enumerate(self.units) if self._fast(u)}
        for opened, closed in sorted(blocks(self.tape), key=lambda p: p[1][1] - p[0][0]):
            inside = [
                i for i, u in enumerate(self.units) if opened[0] < u.stop and u.start < closed[1]
            ]
            if len(inside) < 2 or not found.intersection(inside) or self.first in inside:
                continue
            start, end = self.units[inside[0]].start, self.units[inside[-1]].end
            if start <= opened[0] and closed[1] <= end and self._static(start, end) <= BLOCK_WORDS:
                found.update(inside)
        for i in range(len(self.units) - 2, -1, -1):
            if i + 1 in found and i not in found:
                text = self.shown.text(self.units[i].start, self.units[i].end)
                label = text.rstrip().endswith((":", "："))
                if (label or self._heading(i)) and len(WORD.findall(text)) <= LABEL_WORDS:
                    found.add(i)
        return found
