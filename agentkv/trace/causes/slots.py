"""A place whose value changes from call to call, watched over a whole log.

One change says little: `7` became `8`. Over the log a slot is a counter, a date, a user's name; it
is the same within a session or not. Only here is it decided which lint rule a value belongs to.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from agentkv.engine.types import Reason
from agentkv.trace.causes import cues
from agentkv.trace.causes.change import Change

SAMPLES = 24
VALUES = 512
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")

Key = tuple[str, ...]


@dataclass
class Slot:
    """What is known of one place. `tokens`: lost to it, its share only; `calls`: that lost any."""

    key: Key
    reason: Reason
    rule: str | None
    role: str
    tokens: float = 0.0
    calls: int = 0
    changes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    segments: Counter[str] = field(default_factory=Counter)
    samples: list[tuple[str, str, str]] = field(default_factory=list)
    values: set[int] = field(default_factory=set)
    ups: int = 0
    downs: int = 0
    in_session: int = 0
    between_sessions: int = 0
    same_user: int = 0
    other_user: int = 0
    same_day: int = 0
    other_day: int = 0
    documents_behind: int = 0
    format_behind: int = 0
    instructions_behind: int = 0
    low: int = 1 << 31
    high: int = -1
    """Least and greatest token at which it stood."""
    beside: Counter[Key] = field(default_factory=Counter)
    """How often another slot changed close by in the same call."""

    def see(self, change: Change) -> None:
        """One more change of its value."""
        self.changes += 1
        self.kinds[change.kind] += 1
        self.segments[change.segment] += 1
        self.low, self.high = min(self.low, change.at), max(self.high, change.at)
        if len(self.samples) < SAMPLES:
            self.samples.append((change.was, change.now, change.before or change.label))
        if len(self.values) < VALUES:
            self.values.add(hash(change.now.strip()))
            self.values.add(hash(change.was.strip()))
        a, b = _number(change.was), _number(change.now)
        if a is not None and b is not None:
            self.ups += b > a
            self.downs += b < a

    def see_groups(
        self, *, same_session: bool, same_user: bool | None, same_day: bool | None
    ) -> None:
        """Between which calls it changed; None where a log does not say."""
        self.in_session += same_session
        self.between_sessions += not same_session
        if same_user is not None:
            self.same_user += same_user
            self.other_user += not same_user
        if same_day is not None:
            self.same_day += same_day
            self.other_day += not same_day

    @property
    def kind(self) -> str:
        """The kind of its values: the most telling one that is not an exception."""
        n = sum(self.kinds.values())
        for kind in ("clock", "uuid", "email", "address", "locale"):
            if self.kinds[kind] * 3 >= n:
                return kind
        return self.kinds.most_common(1)[0][0] if n else "text"

    def constant(self, repeated_sessions: bool, repeated_users: bool) -> str | None:
        """The finest grouping within which it never changed, as far as the log shows."""
        if self.in_session:
            return "day" if self.other_day >= 2 and not self.same_day else None
        if self.between_sessions and repeated_sessions:
            if self.other_user and not self.same_user and repeated_users:
                return "user"
            return "session"
        if self.other_user and not self.same_user and repeated_users:
            return "user"
        if self.other_day >= 2 and not self.same_day:
            return "day"
        return None

    @property
    def counts(self) -> bool:
        """Whether its number only ever grows, or only ever falls."""
        n = self.ups + self.downs
        return n >= 3 and max(self.ups, self.downs) >= 0.85 * max(n, 0.7 * self.changes)


def judge(slot: Slot, constant: str | None) -> str | None:
    """The rule of a value slot; None when nothing is known of it (a log without text)."""
    texts = [t for was, now, _ in slot.samples for t in (was, now) if t.strip()]
    if not texts:
        return None
    label = "\n".join({label[-80:] for _, _, label in slot.samples})
    near = "\n".join([label, *texts])
    kind = slot.kind
    if slot.key[1] == "content":
        return _content(slot, near)
    personal = constant in ("session", "user")
    match kind:
        case "clock":
            return "KV101"
        case "date":
            return "KV102"
        case "email":
            return "KV202"
        case "address":
            return "KV107"
        case "path":
            return "KV202" if cues.user(label) and personal else "KV106"
        case "uuid" | "id":
            return "KV202" if _of_user(label, constant) else "KV103"
        case "number":
            return _number_rule(slot, label, personal)
        case "whitespace":
            return "KV310"
        case "unicode":
            return "KV311"
        case "locale":
            return "KV312"
        case "json":
            return "KV302"
        case "image":
            return "KV112"
        case "question":
            return "KV205" if slot.documents_behind or slot.role != "system" else "KV206"
        case _:
            pass
    if cues.summary(label) or (kind == "text" and cues.summary(near)):
        return "KV403"
    if cues.memory(label) or (kind == "text" and cues.memory(near)):
        return "KV203"
    if cues.host(label):
        return "KV106"
    if kind == "text" and cues.examples("\n".join(texts)) and not cues.documents(label):
        # Drawn from a few, or chosen for the question out of many.
        return "KV308" if len(slot.values) <= max(8, slot.changes // 2) else "KV309"
    there_or_not = sum(not was.strip() or not now.strip() for was, now, _ in slot.samples)
    if there_or_not * 2 > len(slot.samples) and kind == "text":
        return "KV204"
    named = sum(cues.names(now) for _, now, _ in slot.samples)
    if kind == "words":
        if named * 2 > len(slot.samples) or personal or cues.user(label):
            return "KV202"
        return "KV104" if len(slot.values) <= 8 and slot.changes >= 8 else "KV201"
    if cues.documents(near):
        return "KV207"
    return "KV202" if personal else "KV201"


def _content(slot: Slot, near: str) -> str:
    """New text of a turn with fixed text behind it: the order is wrong, and what stands behind
    says which order it is."""
    named = sum(cues.names(was) and cues.names(now) for was, now, _ in slot.samples)
    if named * 2 > len(slot.samples):
        return "KV202"
    if slot.documents_behind * 2 >= slot.calls:
        return "KV205"
    if slot.format_behind * 2 >= slot.calls:
        return "KV210"
    if cues.documents(near) and slot.kinds["question"] * 2 < slot.changes:
        return "KV207"
    return "KV205"


def _number_rule(slot: Slot, label: str, personal: bool) -> str:
    of_user = cues.user(label) and not cues.counter(label)
    if slot.counts and not personal and not of_user:
        return "KV105"
    digits = max((sum(c.isdigit() for c in now) for _, now, _ in slot.samples), default=0)
    if cues.ids(label) and digits >= 4 and not cues.user(label):
        return "KV103"
    if personal or of_user:
        return "KV202"
    if cues.counter(label):
        return "KV105"
    if cues.host(label):
        return "KV106"
    return "KV103" if digits >= 6 else "KV201"


def _of_user(label: str, constant: str | None) -> bool:
    """Whether an id names somebody: it stays with a user, or its label says so."""
    return constant == "user" or any(
        cues.user(line[-24:]) and not _of_call(line[-24:]) for line in label.splitlines()
    )


def _of_call(label: str) -> bool:
    return bool(re.search(r"(?i)\b(?:request|trace|run|session|correlation|nonce|call)\b", label))


def _number(text: str) -> float | None:
    m = _NUMBER.search(text)
    if m is None:
        return None
    try:
        return float(m[0].replace(",", ""))
    except ValueError:
        return None
