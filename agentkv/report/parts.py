"""The pieces of a report: a segment's use, a miss, a layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentkv.engine.types import Miss


@dataclass(frozen=True, slots=True)
class SegmentUse:
    """Tokens of one segment of the prompt, and how many of them were read from memory."""

    name: str
    kind: str
    stability: str | None
    tokens: int
    cached: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "stability": self.stability,
            "tokens": self.tokens,
            "cached": self.cached,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SegmentUse:
        return cls(
            name=str(data.get("name", "")),
            kind=str(data.get("kind", "")),
            stability=data.get("stability"),
            tokens=int(data.get("tokens", 0)),
            cached=int(data.get("cached", 0)),
        )


@dataclass(frozen=True, slots=True)
class MissUse:
    """Where reuse ended and why, as the engine saw it; `rule` and `advice` where one applies."""

    token: int
    reason: str
    segment: str | None = None
    was: str | None = None
    now: str | None = None
    detail: str | None = None
    rule: str | None = None
    advice: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "segment": self.segment,
            "token": self.token,
            "reason": self.reason,
            "was": self.was,
            "now": self.now,
            "detail": self.detail,
            "rule": self.rule,
            "advice": self.advice,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MissUse:
        return cls(
            token=int(data.get("token", 0)),
            reason=str(data.get("reason", "unknown")),
            segment=data.get("segment"),
            was=data.get("was"),
            now=data.get("now"),
            detail=data.get("detail"),
            rule=data.get("rule"),
            advice=data.get("advice"),
        )

    @classmethod
    def from_miss(cls, miss: Miss) -> MissUse:
        return cls(
            token=miss.token,
            reason=miss.reason,
            segment=miss.segment,
            was=miss.was,
            now=miss.now,
            detail=miss.detail,
        )

    def clipped(self, chars: int) -> MissUse:
        """The same with its quotations cut to `chars`."""
        return replace(
            self,
            was=clip(self.was, chars),
            now=clip(self.now, chars),
            detail=clip(self.detail, 2 * chars),
            segment=clip(self.segment, min(64, 2 * chars)),
            advice=clip(self.advice, 3 * chars),
        )


@dataclass(frozen=True, slots=True)
class LayoutUse:
    """How the prompt was laid out: the level, what moved where, what was left and why.

    `masked` names tools that stay in the prompt, so that it does not change, and may not be called
    in this turn. `warnings` are sentences about what a session has shown, such as a text that is
    marked static and changed. `proposed` is what level `learn` would move if it were allowed to:
    name, where to, tokens saved a call, calls in which it changed, calls.
    """

    level: str
    moved: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    masked: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    proposed: tuple[tuple[str, str, int, int, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "level": self.level,
            "moved": [list(m) for m in self.moved],
            "refused": [list(r) for r in self.refused],
        }
        if self.masked:
            out["masked"] = list(self.masked)
        if self.proposed:
            out["proposed"] = [list(p) for p in self.proposed]
        if self.warnings:
            out["warnings"] = list(self.warnings)
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LayoutUse:
        return cls(
            level=str(data.get("level", "off")),
            moved=tuple((str(a), str(b)) for a, b in data.get("moved", ())),
            refused=tuple((str(a), str(b)) for a, b in data.get("refused", ())),
            masked=tuple(str(name) for name in data.get("masked", ())),
            warnings=tuple(str(text) for text in data.get("warnings", ())),
            proposed=tuple(
                (str(name), str(to), int(saves), int(changed), int(calls))
                for name, to, saves, changed, calls in data.get("proposed", ())
            ),
        )

    def joined(self, other: LayoutUse) -> LayoutUse:
        """This with what another stage of the layout did, each entry once."""
        return LayoutUse(
            level=self.level,
            moved=tuple(dict.fromkeys((*self.moved, *other.moved))),
            refused=tuple(dict.fromkeys((*self.refused, *other.refused))),
            masked=tuple(dict.fromkeys((*self.masked, *other.masked))),
            warnings=tuple(dict.fromkeys((*self.warnings, *other.warnings))),
            proposed=tuple(dict.fromkeys((*self.proposed, *other.proposed))),
        )


def clip(text: str | None, chars: int) -> str | None:
    """`text`, with an ellipsis where it was cut to `chars` characters."""
    if text is None or len(text) <= chars:
        return text
    return text[: max(0, chars - 1)] + "…"


def folded(segments: Sequence[SegmentUse], limit: int) -> tuple[SegmentUse, ...]:
    """At most `limit` segments: messages without a name of their own are summed by kind, and
    what is still too many is summed as `other`. Sums of tokens and cached tokens are kept.
    """
    sums: dict[str, SegmentUse] = {}
    for use in segments:
        plain = use.name.startswith("messages[") or use.kind == "template"
        key = use.kind if plain else use.name
        old = sums.get(key)
        if old is None:
            sums[key] = replace(use, name=key)
        else:
            sums[key] = replace(old, tokens=old.tokens + use.tokens, cached=old.cached + use.cached)
    out = list(sums.values())
    if len(out) > limit:
        rest = out[limit - 1 :]
        tokens, cached = sum(u.tokens for u in rest), sum(u.cached for u in rest)
        out = [*out[: limit - 1], SegmentUse("other", "context", None, tokens, cached)]
    return tuple(out)
