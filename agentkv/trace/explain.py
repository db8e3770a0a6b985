"""`explain`: two requests, the first token at which they part, and why.

Where an engine with the same prefix in its cache would have stopped reusing it, what stood there
before and what stands there now, and which rule speaks of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentkv.engine.why import common_prefix
from agentkv.trace.caches.base import namespace_of
from agentkv.trace.call import Call
from agentkv.trace.causes.finder import Finder
from agentkv.trace.render import Rendered, Renderer
from agentkv.trace.report import CauseRow

CONTEXT = 60
"""Characters shown on each side of the place."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """`token`: first one that differs, None when neither does. `same_until`: what stands right in
    front of it; `was`, `now`: what follows in either request. `reason`: `appended` when the second
    only goes on. `lost`: tokens of the second that the first held too, behind the place."""

    tokens: tuple[int, int]
    token: int | None
    segment: str | None
    same_until: str
    was: str
    now: str
    reason: str
    causes: tuple[CauseRow, ...]
    exact: bool

    @property
    def lost(self) -> int:
        return sum(c.tokens_lost for c in self.causes)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "prompt_tokens": list(self.tokens),
            "common_tokens": self.token if self.token is not None else self.tokens[1],
            "token": self.token,
            "segment": self.segment,
            "same_until": self.same_until,
            "was": self.was,
            "now": self.now,
            "reason": self.reason,
            "tokens_lost": self.lost,
            "exact": self.exact,
            "causes": [c.to_dict() for c in self.causes],
        }


def explain(before: Call, after: Call, renderer: Renderer) -> Explanation:
    """Why `after` could not reuse all of what `before` left in a cache."""
    old, new = renderer.render(before), renderer.render(after)
    spaces = namespace_of(before), namespace_of(after)
    shared = common_prefix(new.prompt.token_ids, old.full) if spaces[0] == spaces[1] else 0
    finder = Finder()
    finder.call(before, old, session="a", namespace=spaces[0], matched=0)
    loss = finder.call(after, new, session="a", namespace=spaces[1], matched=shared)
    parted = shared < min(len(old.full), len(new.prompt.token_ids))
    segment, head, was, now = _place(before, after, old, new, shared)
    return Explanation(
        tokens=(old.tokens, new.tokens),
        token=shared if parted else None,
        segment=segment if parted else None,
        same_until=head,
        was=was if parted else "",
        now=now,
        reason=loss.reason or "appended",
        causes=finder.ledger.rows(),
        exact=renderer.exact,
    )


def _place(
    before: Call, after: Call, old: Rendered, new: Rendered, token: int
) -> tuple[str | None, str, str, str]:
    """Name of the part, and texts around the place: in front of it, then of the old and the new."""
    here, there = _piece_at(after, new, token), _piece_at(before, old, token)
    if here is None:
        return None, "", "" if there is None else there[1][:CONTEXT], ""
    name, now = here
    was = there[1] if there is not None else ""
    at = 0
    while at < min(len(was), len(now)) and was[at] == now[at]:
        at += 1
    return (
        name,
        now[max(0, at - CONTEXT) : at],
        was[at : at + CONTEXT],
        now[at : at + CONTEXT],
    )


def _piece_at(call: Call, rendered: Rendered, token: int) -> tuple[str, str] | None:
    """Name of the part and text of the piece that holds a token, or that comes next."""
    for span in sorted(rendered.pieces, key=lambda s: s.start):
        if token < span.end:
            part = call.parts[span.part]
            piece = part.pieces[span.piece]
            return part.name, piece.text if not piece.redacted else f"[{piece.key}]"
    return None
