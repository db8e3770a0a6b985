"""The account of a whole log: slots, what each of them cost, and one row a cause at the end."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentkv.engine.types import Reason
from agentkv.trace.call import Call
from agentkv.trace.causes import cues
from agentkv.trace.causes.change import Change, slot_key
from agentkv.trace.causes.memory import Past
from agentkv.trace.causes.rules import said
from agentkv.trace.causes.slots import Key, Slot, judge
from agentkv.trace.report import CauseRow, Example

SLOTS = 512
"""More places than that are counted together by reason."""
SEEN = 4096
NEAR = 48
"""Tokens within which two values stand side by side."""
WEAK = ("KV201", "KV202", "KV104", "KV103", "KV105", "KV204")
"""Guesses about loose words and numbers: a clear value right beside them says more."""
LEAST_ROW = 8


@dataclass
class _Examples:
    first: Example | None = None
    worst: Example | None = None
    details: Counter[str] = field(default_factory=Counter)


class Ledger:
    """`seen` every call, `book` every loss, then `rows`."""

    def __init__(self) -> None:
        self.slots: dict[Key, Slot] = {}
        self._examples: defaultdict[Key, _Examples] = defaultdict(_Examples)
        self._users: OrderedDict[str, None] = OrderedDict()
        self._repeated_sessions = False
        self._repeated_users = False
        self.lost = 0.0

    def seen(self, call: Call, session: str, *, again: bool) -> None:
        """Note who made a call: a value can only be called constant within what recurs."""
        self._repeated_sessions = self._repeated_sessions or again
        if call.user is not None:
            self._repeated_users = self._repeated_users or call.user in self._users
            self._users[call.user] = None
            while len(self._users) > SEEN:
                self._users.popitem(last=False)

    def book(
        self,
        past: Past,
        other: Past,
        changes: Sequence[Change],
        shares: Mapping[int, float],
        behind: Mapping[int, str],
        *,
        same: bool,
    ) -> tuple[float, dict[Reason, float]]:
        """Add one call's losses. `shares`: tokens by index of a change; `behind`: some of the text
        that stayed behind it. Returns the tokens, and those by reason."""
        by_reason: defaultdict[Reason, float] = defaultdict(float)
        places: list[tuple[Key, int, int]] = []
        counted: set[Key] = set()
        for index, tokens in shares.items():
            change = changes[index]
            key = self._key(change)
            slot = self.slots.get(key)
            if slot is None:
                role = change.role if change.role in ("tools", "system") else "talk"
                slot = self.slots[key] = Slot(key, change.reason, change.rule, role)
            slot.see(change)
            slot.tokens += tokens
            if key not in counted:
                counted.add(key)
                slot.calls += 1
                text = behind.get(index, "")
                slot.documents_behind += cues.documents(text)
                slot.format_behind += cues.answer_format(text)
            slot.see_groups(
                same_session=same,
                same_user=_same(past.call.user, other.call.user),
                same_day=_same(_day(past.call), _day(other.call)),
            )
            by_reason[change.reason] += tokens
            places.append((key, change.at, change.at + len(change.now) // 4))
            self._example(key, past, other, change, tokens)
        for key, at, end in places:
            for other_key, there, other_end in places:
                if key != other_key and at - NEAR <= other_end and there - NEAR <= end:
                    self.slots[key].beside[other_key] += 1
        total = sum(shares.values())
        self.lost += total
        return total, dict(by_reason)

    def _key(self, change: Change) -> Key:
        key = slot_key(change)
        if key in self.slots or len(self.slots) < SLOTS:
            return key
        return (change.reason, "value", change.role, "many")

    def _example(self, key: Key, past: Past, other: Past, change: Change, tokens: float) -> None:
        kept = self._examples[key]
        if change.detail:
            kept.details[change.detail] += 1
        if kept.first is not None and kept.worst is not None and tokens <= kept.worst.tokens_lost:
            return
        example = Example(
            where=past.call.where,
            request=past.request,
            session=past.session,
            tokens_lost=round(tokens),
            at=change.at,
            segment=change.segment,
            was=change.was,
            now=change.now,
            before=change.label or None,
            compared_with=other.call.where,
            time=past.call.time,
        )
        if kept.first is None:
            kept.first = example
        kept.worst = example

    # -- rows

    def rows(self) -> tuple[CauseRow, ...]:
        """One row a cause, by tokens lost. Their tokens are whole and sum to what was lost."""
        rules = self._rules()
        groups: defaultdict[tuple[Reason, str | None, str], list[Slot]] = defaultdict(list)
        for slot in self.slots.values():
            reason, rule = rules[slot.key]
            where = "" if rule in ("KV507", "KV707") else slot.role
            groups[(reason, rule, where)].append(slot)
        kept = {g: s for g, s in groups.items() if sum(x.tokens for x in s) >= LEAST_ROW}
        whole = _whole([sum(x.tokens for x in s) for s in kept.values()])
        total = sum(whole)
        out = [
            self._row(reason, rule, slots, tokens, total)
            for ((reason, rule, _), slots), tokens in zip(kept.items(), whole, strict=True)
        ]
        return tuple(sorted(out, key=lambda r: (-r.tokens_lost, r.first.request)))

    def _rules(self) -> dict[Key, tuple[Reason, str | None]]:
        """Reason and rule of each slot."""
        alone = {
            k: s.rule if s.rule is not None else judge(s, self._constant(s))
            for k, s in self.slots.items()
        }
        out: dict[Key, tuple[Reason, str | None]] = {}
        for key, slot in self.slots.items():
            out[key] = (slot.reason, alone[key])
            peers = [s for k, s in self.slots.items() if k != key and s.role == slot.role]
            if slot.kind == "reorder" and slot.role != "tools":
                # One list, and in some calls too little of it moved to tell what it lists.
                lists = [s for s in peers if s.kind == "reorder" and s.tokens > slot.tokens]
                if lists:
                    main = max(lists, key=lambda s: s.tokens)
                    out[key] = (main.reason, main.rule)
                continue
            reworded = slot.rule == "KV402" and slot.kind in ("words", "text", "number")
            if not reworded and (slot.rule is not None or alone[key] not in WEAK):
                continue
            best = max(
                (s for s in peers if s.rule is None and _absorbs(s, slot, alone)),
                key=lambda s: (_rank(alone[s.key]), s.tokens),
                default=None,
            )
            if best is not None:
                out[key] = (best.reason, alone[best.key])
        return out

    def _constant(self, slot: Slot) -> str | None:
        return slot.constant(self._repeated_sessions, self._repeated_users)

    def _row(
        self, reason: Reason, rule: str | None, slots: list[Slot], tokens: int, total: int
    ) -> CauseRow:
        slots = sorted(slots, key=lambda s: -s.tokens)
        main = slots[0]
        kept = [self._examples[s.key] for s in slots]
        firsts = [e.first for e in kept if e.first is not None]
        worsts = [e.worst for e in kept if e.worst is not None]
        words = said(rule, reason)
        segments: Counter[str] = sum((s.segments for s in slots), Counter())
        segment = (
            segments.most_common(1)[0][0]
            if len(segments) == 1 or main.role != "talk"
            else ("messages")
        )
        details: Counter[str] = sum((e.details for e in kept), Counter())
        advice = words.advice
        if details and reason in ("tool_changed", "tool_order", "history_truncated", "template"):
            advice = f"{advice} ({details.most_common(1)[0][0]}.)"
        return CauseRow(
            reason=reason,
            rule=rule,
            name=words.name,
            segment=segment,
            count=max(s.calls for s in slots) if len(slots) > 1 else main.calls,
            tokens_lost=tokens,
            share=tokens / total if total else 0.0,
            first=min(firsts, key=lambda e: e.request),
            worst=max(worsts, key=lambda e: e.tokens_lost),
            advice=advice,
            value=main.kind if main.rule is None or main.kind in ("image", "json") else None,
            constant=self._constant(main),
            variants=len(main.values),
            fix=words.fix,
        )


def _rank(rule: str | None) -> int:
    """How much a rule says of the value beside it."""
    order = ("KV312", "KV202", "KV101", "KV102", "KV203", "KV403", "KV207", "KV308", "KV309")
    return len(order) - order.index(rule) if rule in order else 0


def _absorbs(strong: Slot, weak: Slot, rules: Mapping[Key, str | None]) -> bool:
    """Whether a loose word or number is part of another slot: it changes only together with a clear
    value beside it (the city after the name, the weekday's word after the date), or it is the same
    place, read in another way in a few of the calls."""
    rule, own = rules[strong.key], rules[weak.key]
    if rule is None:
        return False
    if _rank(rule) > _rank(own) and strong.beside[weak.key] >= weak.calls:
        return True
    few = strong.calls >= 3 * weak.calls
    if few and strong.key[1] == "content" and weak.rule is None and weak.role == "talk":
        return True
    same = strong.low - NEAR // 6 <= weak.low and weak.high <= strong.high + NEAR // 6
    return few and same and (weak.role == "talk" or bool({*strong.segments} & {*weak.segments}))


def _same(a: object, b: object) -> bool | None:
    return None if a is None or b is None else a == b


def _day(call: Call) -> int | None:
    return None if call.time is None or call.time < 1e8 else int(call.time // 86400)


def _whole(values: Sequence[float]) -> list[int]:
    """Whole numbers with the rounded sum of the values (largest remainders get the rest)."""
    floors = [int(v) for v in values]
    rest = round(sum(values)) - sum(floors)
    order = sorted(range(len(values)), key=lambda i: floors[i] - values[i])
    for i in order[:rest]:
        floors[i] += 1
    return floors
