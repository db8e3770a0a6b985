"""What rules about holes share: which slots they look at, how they price, what they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from agentkv.lint import price
from agentkv.lint.context import Context
from agentkv.lint.finding import Finding, Severity
from agentkv.lint.price import ORDER, Cost, Scale
from agentkv.lint.rule import Rule
from agentkv.lint.source import Slice
from agentkv.lint.spot import Spot, spots
from agentkv.lint.template import Document


class HoleRule(Rule):
    """A rule about single holes. Subclasses say which they catch, and what can be done."""

    scale: ClassVar[Scale] = ORDER
    most: ClassVar[Severity] = "error"
    inside: ClassVar[bool] = True
    """Whether holes inside sections are looked at too, or the sections only."""
    advice: ClassVar[str] = ""

    def catches(self, spot: Spot, context: Context) -> bool:
        raise NotImplementedError

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        most: Severity = "info" if self.certainty == "heuristic" else self.most
        return price.of(spot, context, scale=self.scale, most=most)

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        first = f"{who(spot)} precedes {what(cost, context)}; {often(spot, cost, context)}."
        return f"{first} {self.advice}".strip()

    def also(self, spot: Spot) -> tuple[tuple[Slice, str], ...]:
        made = spot.hole.defined_at
        return ((made, "made here"),) if made is not None and made != spot.hole.slice else ()

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for spot in spots(document, context):
            if spot.hole.name in context.stability and not spot.dynamic:
                continue
            if spot.section is not None and not self.inside:
                continue
            if not self.catches(spot, context):
                continue
            cost = self.cost(spot, context)
            if cost is not None:
                yield self.finding(spot, cost, context)

    def finding(self, spot: Spot, cost: Cost, context: Context) -> Finding:
        before, after = price.bars(spot.template, spot.at, context)
        return Finding(
            code=self.code,
            name=self.name,
            slice=spot.hole.slice or spot.template.parts[spot.part].slice or spot.template.slice,
            message=self.message(spot, cost, context),
            severity=cost.severity,
            tokens_lost=cost.lost,
            static_behind=cost.behind,
            share=cost.share,
            template=spot.template,
            request=spot.request,
            before=before,
            after=after,
            also=self.also(spot),
            slot=spot.slot,
            at=spot.at,
        )


def firm(spot: Spot) -> Severity:
    """The worst that may be said of a slot: nobody is stopped by what a name suggests."""
    return "error" if spot.hole.known else "warning"


def who(spot: Spot) -> str:
    """`{name} (user)`."""
    return f"{shown(spot)} ({spot.level})"


def shown(spot: Spot) -> str:
    """How the hole is written, on one line and not too long."""
    text = re.sub(r"\s+", " ", spot.hole.expr).strip() or spot.hole.name
    return text if len(text) <= 60 else text[:57] + "..."


_FEW = 8
"""So few tokens between a slot and a conversation, a full stop perhaps, are not worth a word."""


def what(cost: Cost, context: Context) -> str:
    """`1,240 static tokens and the conversation behind them`."""
    about = "" if context.exact else "about "
    if cost.behind >= _FEW and cost.history:
        return f"{about}{cost.behind:,} static tokens and the conversation behind them"
    if cost.history:
        return f"the conversation (about {cost.history:,} tokens)"
    return f"{about}{cost.behind:,} static tokens"


def often(spot: Spot, cost: Cost, context: Context) -> str:
    """`about 60 % of calls compute them again`."""
    them = "them" if cost.behind and (cost.behind >= _FEW or not cost.history) else "it"
    if spot.traits & {"clock", "date"} and spot.level == "call":
        if spot.hourly:
            return f"each hour computes {them} again"
        if "clock" not in spot.traits:
            if spot.hole.known:
                return f"each new day computes {them} again"
            return f"every new value computes {them} again (its precision is not known here)"
    return percent(cost.share, them)


def percent(share: float, them: str = "them") -> str:
    if share >= 0.995:
        return f"every call computes {them} again"
    if share < 0.01:
        return f"fewer than 1 % of calls compute {them} again"
    return f"about {share * 100:.0f} % of calls compute {them} again"
