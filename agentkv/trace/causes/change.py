"""What a comparison of two prompts yields: the places where they part, and what both still hold."""

from __future__ import annotations

from dataclasses import dataclass

from agentkv.engine.types import Reason


@dataclass(frozen=True, slots=True)
class Change:
    """One place at which a prompt parts from the one that it is compared with.

    `at`: token of the new prompt at which it stands, `end` the one behind it. `rule`: None for a value whose kind is judged over the whole log.
    `kind`: of the value. `segment`: name of the part. `label`: what stands in front of the value.
    `content`: new text that nobody would expect to be the same. `closing`: in the last turn of the
    earlier prompt, which is there to be followed by something new.
    """

    at: int
    reason: Reason
    rule: str | None
    kind: str
    segment: str
    role: str
    label: str = ""
    was: str = ""
    now: str = ""
    before: str = ""
    content: bool = False
    closing: bool = False
    detail: str = ""
    end: int = 0

    def overcome(self, matched: int) -> bool:
        """Whether a prompt that is like some other one for its first `matched` tokens holds all of
        the change in them: half of a value is none."""
        return matched >= max(self.end, self.at + 1)


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens `[start, end)` of the new prompt that the earlier one held as well, there or elsewhere.

    `closing`, `answer`: in the earlier prompt they stood in its last turn, were its reply. `role`:
    whose they are in the new one. `text`: their first characters.
    """

    start: int
    end: int
    role: str
    closing: bool = False
    answer: bool = False
    whole: bool = True
    text: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    changes: tuple[Change, ...]
    runs: tuple[Run, ...]


def slot_key(change: Change) -> tuple[str, ...]:
    """Changes with one key are changes of one place."""
    role = change.role if change.role in ("tools", "system") else "talk"
    if change.rule is not None:
        return (change.reason, change.rule, role)
    if change.content:
        return (change.reason, "content", role)
    label = "".join("#" if c.isdigit() else c for c in change.label.lower())
    label = " ".join(label.split())[-24:]
    return (change.reason, "value", role, change.segment, label)
