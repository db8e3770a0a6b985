"""Earlier calls that a new one is compared with: the last of its session, or the most alike other.

Bounded: the oldest are forgotten. Likeness is counted in characters of lines that both hold, by an
index from lines to the calls that held them last, so that one look costs the length of one prompt.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agentkv.engine.types import IntArray
from agentkv.trace.call import Call, Piece
from agentkv.trace.causes.units import Unit, answer_units, units
from agentkv.trace.render import Rendered

SESSIONS = 2048
HELD_IDS = 3_000_000
"""Of the sessions' last prompts together: fewer sessions are remembered where prompts are long."""
OTHERS = 256
LINES = 100_000
HOLDERS = 6
PIECES = 1024
LEAST_LINE = 16
REMEMBERED = 2000
"""Characters of a line whose hashes are kept: most lines of a log come again."""
_DIGITS = re.compile(r"\d+")
_ENDS = re.compile(r"[.!?;](?:\s|$)")
HEAD_PARTS = 12
"""Only so many leading parts of a prompt make it alike another: what it is set up with."""


@dataclass(slots=True)
class Past:
    """One earlier call. `request`: its number in the log."""

    request: int
    call: Call
    rendered: Rendered
    namespace: tuple[Hashable, ...]
    session: str

    @property
    def ids(self) -> IntArray:
        return self.rendered.prompt.token_ids

    @property
    def full(self) -> IntArray:
        """Prompt and answer."""
        if not len(self.rendered.answer_ids):
            return self.ids
        return np.concatenate([self.ids, self.rendered.answer_ids])

    def units(self, *, answer: bool) -> list[Unit]:
        found = units(self.call, self.rendered)
        return found + answer_units(self.call, self.rendered) if answer else found


class Memory:
    """Remembers calls; see the module's docstring for its bounds."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Past] = OrderedDict()
        self._held = 0
        self._others: OrderedDict[int, Past] = OrderedDict()
        self._lines: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._pieces: OrderedDict[str, dict[int, int]] = OrderedDict()

    def previous(self, session: str) -> Past | None:
        return self._sessions.get(session)

    def keep(self, past: Past, *, alike: bool) -> None:
        """Remember a call as its session's last, and with `alike` as one to compare others with."""
        before = self._sessions.pop(past.session, None)
        self._held += len(past.ids) - (0 if before is None else len(before.ids))
        self._sessions[past.session] = past
        while len(self._sessions) > SESSIONS or (self._held > HELD_IDS and len(self._sessions) > 1):
            _, gone = self._sessions.popitem(last=False)
            self._held -= len(gone.ids)
        if not alike:
            return
        self._others[past.request] = past
        while len(self._others) > OTHERS:
            self._others.popitem(last=False)
        for line in self._lines_of(past.call):
            self._lines[line] = (*self._lines.pop(line, ())[-HOLDERS + 1 :], past.request)
        while len(self._lines) > LINES:
            self._lines.popitem(last=False)

    def nearest(
        self, call: Call, namespace: tuple[Hashable, ...], session: str | None
    ) -> Past | None:
        """The call of another session than `session` (None: of any) that shares most with this one;
        the later of two equal ones, and rather one with the same model."""
        score: Counter[int] = Counter()
        for line, size in self._lines_of(call).items():
            for request in self._lines.get(line, ()):
                score[request] += size
        best: Past | None = None
        best_key = (0, False, -1)
        for request, size in score.items():
            past = self._others.get(request)
            if past is None or past.session == session:
                continue
            key = (size, past.namespace == namespace, request)
            if key > best_key:
                best, best_key = past, key
        if best is None:
            # No line is the same (white space and spelling of all of them changed): the last one.
            best = next((p for p in reversed(self._others.values()) if p.session != session), None)
        return best

    def _lines_of(self, call: Call) -> dict[int, int]:
        """Lines of a prompt's head, by hash, with their sizes."""
        out: dict[int, int] = {}
        for part in call.parts[:HEAD_PARTS]:
            for piece in part.pieces:
                lines = self._pieces.get(piece.key)
                if lines is None:
                    lines = self._pieces[piece.key] = _lines(piece)
                    if len(self._pieces) > PIECES:
                        self._pieces.popitem(last=False)
                out.update(lines)
        return out


def _lines(piece: Piece) -> dict[int, int]:
    """Hash and size of each line, or of the whole, where it is JSON or no text."""
    out: dict[int, int] = {}
    if piece.kind in ("text", "document", "tool_result") and not piece.redacted:
        for line in piece.text.split("\n"):
            out.update(_bits(line) if len(line) < REMEMBERED else _bits.__wrapped__(line))
    else:
        out[hash(piece.key)] = min(piece.size, 4000)
    if piece.name:
        out[hash(("name", piece.name))] = 20
    return out


@lru_cache(maxsize=4096)
def _bits(line: str) -> tuple[tuple[int, int], ...]:
    """Hash and size of each sentence of a line, without what its white space, its case and its
    numbers say: one of them may hold a value that changes. Short ones are left out."""
    bare = _DIGITS.sub("0", line.casefold())
    bits = (" ".join(bit.split()) for bit in _ENDS.split(bare))
    return tuple((hash(bit), len(bit)) for bit in bits if len(bit) >= LEAST_LINE)
