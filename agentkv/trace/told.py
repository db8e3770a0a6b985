"""One change between two prompts, told in full: where, what, which rule, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentkv.engine.types import Reason
from agentkv.engine.why import common_prefix
from agentkv.trace.causes import cues
from agentkv.trace.causes.change import Change, Comparison, slot_key
from agentkv.trace.causes.compare import compare
from agentkv.trace.causes.finder import share
from agentkv.trace.causes.memory import Past
from agentkv.trace.causes.rules import RULES
from agentkv.trace.causes.slots import Key, Slot, judge
from agentkv.trace.causes.template import by_template


@dataclass(frozen=True, slots=True)
class Told:
    """`at`: token of the later prompt. `rule`, `name`, `advice`: of `agentkv rule`; None where no
    rule fits, or where the change is what one expects of a new turn. `tokens_lost`: behind it, and
    its share only where several changes stand in front of the same text."""

    at: int
    segment: str
    reason: Reason
    rule: str | None
    name: str | None
    was: str
    now: str
    before: str
    tokens_lost: int
    advice: str | None = None
    detail: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "segment": self.segment,
            "reason": self.reason,
            "rule": self.rule,
            "name": self.name,
            "before": self.before,
            "was": self.was,
            "now": self.now,
            "tokens_lost": self.tokens_lost,
            "advice": self.advice,
            "detail": self.detail,
        }


def differences(past: Past, other: Past, *, same: bool) -> Comparison:
    """What `past` changed of `other`, by the chat template or by itself. `same`: the two are of one
    session, so that the reply of `other` belongs to it."""
    if same and past.namespace == other.namespace:
        shared = common_prefix(past.ids, other.full)
        if shared < len(other.ids):
            found = by_template(past, other, shared)
            if found is not None:
                return found
    return compare(other.units(answer=same), past.units(answer=False), same_session=same)


def tell(
    found: Comparison,
    matched: int,
    tokens: int,
    *,
    same: bool,
    slots: Mapping[Key, Slot] | None = None,
) -> list[Told]:
    """The changes of a comparison, by place. `matched`: tokens of the later prompt that were (or
    could be) served; `tokens`: of all of it. `slots`: what a whole log showed of the same places."""
    shares, behind = share(found, matched, tokens, same=same)
    return [
        told(change, shares.get(i, 0.0), behind.get(i, ""), slots)
        for i, change in enumerate(found.changes)
    ]


def told(change: Change, lost: float, behind: str, slots: Mapping[Key, Slot] | None = None) -> Told:
    """One change in full. `behind`: some of the text that stayed behind it."""
    rule = change.rule
    if rule is None and (lost or not (change.closing or change.content)):
        slot = slots.get(slot_key(change)) if slots is not None else None
        if slot is None:
            slot = _alone(change, behind)
        rule = judge(slot, slot.constant(True, True))
        if rule in ("KV104", "KV201") and slot.role == "talk" and slot.documents_behind:
            rule = "KV205"  # what is said in front of documents, in a turn, is what is asked
    said = RULES.get(rule) if rule is not None else None
    return Told(
        at=change.at,
        segment=change.segment,
        reason=change.reason,
        rule=rule,
        name=said.name if said is not None else None,
        was=change.was,
        now=change.now,
        before=change.before,
        tokens_lost=round(lost),
        advice=said.advice if said is not None else None,
        detail=change.detail or None,
    )


def _alone(change: Change, behind: str) -> Slot:
    """A place of which one change is all that is known."""
    role = change.role if change.role in ("tools", "system") else "talk"
    slot = Slot(slot_key(change), change.reason, change.rule, role)
    slot.see(change)
    slot.calls = 1
    slot.documents_behind = int(cues.documents(behind))
    slot.format_behind = int(cues.answer_format(behind))
    return slot
