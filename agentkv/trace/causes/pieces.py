"""One unit that was replaced by another one in its place: what kind of change it is.

Which reason fits depends on whose text it is: instructions hold values (a clock, a name), history
is edited, the closing turn asks something new.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from agentkv.engine.types import Reason
from agentkv.trace.causes import cues
from agentkv.trace.causes.change import Change, Run
from agentkv.trace.causes.text import MAX_BLOCKS, TextDiff, common_stretch, diff
from agentkv.trace.causes.units import Unit
from agentkv.trace.causes.values import blanks_out
from agentkv.trace.causes.words import Edit

CONTEXT = 300
SIGNED = "the same address with another signature"
MEDIA = ("image", "audio", "file")
OPEN_BLOCKS = 6
"""Stretches of a turn that are compared word by word: what it asks is new anyway."""
SERIALISED: dict[str, str] = {"whitespace": "KV310", "unicode": "KV311", "locale": "KV312"}


@dataclass
class Found:
    changes: list[Change] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


def piece_changes(
    old: Unit, new: Unit, *, closing: bool, first_user: bool, same_session: bool, goes_on: bool
) -> Found:
    """What differs between two units of one role and kind. `closing`: `old` is of the last turn of
    its prompt. `first_user`: of the first message of the conversation. `goes_on`: the conversation
    of `new` goes on behind it."""
    found = Found()
    settled = new.talk and not closing and not first_user
    if new.kind in MEDIA:
        change = _media(old, new, closing)
        found.changes.append(change)
        if change.detail == SIGNED:  # the same picture, so its own tokens are lost as well
            found.runs.append(Run(new.start, new.end, new.role, closing, old.answer))
        return found
    if old.redacted or new.redacted or not (old.text and new.text):
        reason: Reason = "history_edited" if settled and same_session else "text_changed"
        rule = "KV402" if reason == "history_edited" and _shorter(old, new) else None
        found.changes.append(
            _change(new, new.start, reason, rule, "text", old.text, new.text, closing=closing)
        )
        return found
    if new.kind == "document":
        found.changes.append(
            _change(
                new, new.start, "text_changed", None, "text", old.text, new.text,
                content=True, closing=True,
            )
        )  # fmt: skip
        return found
    bare = cues.without_thoughts(old.text)
    if (
        bare is not None
        and cues.without_thoughts(new.text) is None
        and blanks_out(bare) == blanks_out(new.text)
    ):
        found.changes.append(
            _change(new, new.start, "reasoning_stripped", "KV406", "text", old.text, new.text)
        )
        found.runs.append(_run(new, 0, len(new.text), closing, old.answer))
        return found
    if new.kind == "tool_call" and _same_json(old.text, new.text):
        found.changes.append(
            _change(new, new.start, "history_edited", "KV407", "json", old.text, new.text)
        )
        found.runs.append(_run(new, 0, len(new.text), closing, old.answer))
        return found
    if closing and not common_stretch(old.text, new.text):
        found.changes.append(
            _change(
                new, new.start, "text_changed", None, "text", old.text, new.text,
                content=True, closing=True,
            )
        )  # fmt: skip
        return found
    if (settled or old.answer) and not same_session:
        found.changes.append(
            _change(new, new.start, "text_changed", None, "text", old.text, new.text, content=True)
        )
        return found
    result = diff(old.text, new.text, words=OPEN_BLOCKS if closing else MAX_BLOCKS)
    if settled or old.answer:
        _history(found, old, new, result)
    else:
        edited = same_session and new.talk and goes_on
        _values(found, new, result, closing, edited)
    return found


def _shorter(old: Unit, new: Unit) -> bool:
    """Whether sizes alone tell that what a client sent was cut, or grew. The words of an answer may
    be without its thoughts; a few characters are other white space, or another format."""
    if new.role in ("assistant", "model"):
        return False
    a, b = old.tokens, new.tokens
    return abs(a - b) > max(4, max(a, b) // 10)


def _media(old: Unit, new: Unit, closing: bool) -> Change:
    """Bytes of a picture that stands where one stood: encoded or signed anew, or another one."""
    a, b = urlsplit(old.text[:2000]), urlsplit(new.text[:2000])
    signed = a.scheme in ("http", "https") and (a.netloc, a.path) == (b.netloc, b.path)
    detail = SIGNED if signed else "other bytes for a picture in the same place"
    return _change(
        new, new.start, "text_changed", "KV112", "image", old.text, new.text,
        closing=closing, detail=detail,
    )  # fmt: skip


def _history(found: Found, old: Unit, new: Unit, result: TextDiff) -> None:
    """A message that was sent before is not what it was."""
    first = result.edits[0] if result.edits else None
    at = first.at if first is not None else 0
    rule = "KV402"
    if first is not None and len({e.kind for e in result.edits}) == 1:
        rule = SERIALISED.get(first.kind, rule)
    if old.answer:
        if rule == "KV402" and (first is None or first.kind not in ("json",)):
            return  # the client wrote another answer: there is nothing to reuse
        rule = "KV407"
    kind = first.kind if first is not None else "text"
    was, now = (first.was, first.now) if first is not None else (old.text, new.text)
    change = _change(
        new, new.token_at(at) if at else new.start, "history_edited", rule, kind, was, now,
        label=first.label if first else "", segment="messages",
        end=new.end if first is None else new.token_from(first.end),
    )  # fmt: skip
    found.changes.append(change)
    found.runs += [
        _run(new, s, e, False, old.answer) for s, e in result.runs if e > at and e - s >= 12
    ]


def _values(found: Found, new: Unit, result: TextDiff, closing: bool, edited: bool) -> None:
    """Instructions, or a turn that asks: each edit is a change of its own. `edited`: the turn was
    asked before, and its words are not what they were."""
    floor = 24 if new.talk else 12
    reach = 0
    for edit in result.edits:
        found.changes.append(_value(new, edit, reach, closing, edited))
        reach = max(reach, edit.end)
    for start, end in result.runs:
        if end - start >= floor or (start == 0):
            found.runs.append(_run(new, start, end, closing, False))


LOOSE = ("words", "text", "number")


def _value(new: Unit, edit: Edit, reach: int, closing: bool, edited: bool) -> Change:
    # A change at the very beginning starts with the header, as the run behind it does.
    at = new.token_at(edit.at) if edit.at else new.start
    label = edit.label
    if reach:
        # Values in front of this one on its line are changes of their own, not its label.
        between = new.text[reach : edit.at]
        label = between[-80:] if len(between) < len(edit.label) else edit.label
    reason: Reason = "text_changed"
    rule = "KV302" if edit.kind == "json" else SERIALISED.get(edit.kind)
    content, kind = False, str(edit.kind)
    if edit.kind == "reorder":
        reason, rule = _order(new, edit)
    elif edit.kind in LOOSE and new.talk and edited:
        named = cues.names(edit.was) and cues.names(edit.now)
        counted = edit.kind == "number" and cues.counter(label[-20:])
        if not named and not counted:
            reason, rule = "history_edited", "KV402"
    elif edit.kind in LOOSE:
        content = new.talk
        kind = "question" if _asks(edit, new) else edit.kind
    return _change(
        new, at, reason, rule, kind, edit.was, edit.now,
        label=label, before=edit.label, content=content, closing=closing,
        end=new.token_from(edit.end),
    )  # fmt: skip


def _asks(edit: Edit, new: Unit) -> bool:
    """Whether the changed words are (part of) a question."""
    if cues.names(edit.was) and cues.names(edit.now):
        return False  # somebody is asked
    if edit.kind != "number" and cues.question(edit.label, edit.now):
        return True
    rest = re.match(r"[^\n.!]*", new.text[edit.end : edit.end + 300])
    return rest is not None and "?" in rest[0]


def _order(new: Unit, edit: Edit) -> tuple[Reason, str]:
    """Which list it is that stands in another order."""
    moved = "\n".join(edit.moved)
    around = f"{edit.label}\n{new.text[max(0, edit.at - 200) : edit.at]}"
    if new.kind == "document" or new.part_kind == "documents":
        return "document_order", "KV306"
    shots, papers = cues.examples(moved), cues.documents(moved)
    if shots and not papers:
        return "text_changed", "KV308"
    if papers and not shots:
        return "document_order", "KV306"
    shots_near, papers_near = cues.examples(around), cues.documents(around)
    if shots_near and not papers_near:
        return "text_changed", "KV308"
    if papers_near or papers:
        return "document_order", "KV306"
    if shots or shots_near:
        return "text_changed", "KV308"
    words = [len(t.split()) for t in edit.moved]
    long = bool(words) and sum(words) / len(words) >= 25
    if new.talk or long:
        return "document_order", "KV306"
    return "text_changed", "KV303"


def _same_json(a: str, b: str) -> bool:
    try:
        return bool(json.loads(a) == json.loads(b))
    except (ValueError, RecursionError):
        return False


def _run(unit: Unit, start: int, end: int, closing: bool, answer: bool) -> Run:
    first = unit.start if start == 0 else unit.token_from(start)
    return Run(
        first, max(first, unit.token_at(end)), unit.role, closing, answer,
        whole=False, text=unit.text[start : start + CONTEXT],
    )  # fmt: skip


def _change(
    unit: Unit, at: int, reason: Reason, rule: str | None, kind: str, was: str, now: str,
    *, label: str = "", before: str | None = None, content: bool = False, closing: bool = False,
    detail: str = "", segment: str | None = None, end: int | None = None,
) -> Change:  # fmt: skip
    if segment is None:
        segment = "messages" if reason in ("history_edited", "reasoning_stripped") else unit.name
    return Change(
        at, reason, rule, kind, segment, unit.role, label, was[:CONTEXT], now[:CONTEXT],
        label if before is None else before, content, closing, detail,
        unit.end if end is None else end,
    )  # fmt: skip
