"""Compares a prompt with an earlier one: the changes between them, and what both still hold.

Units are aligned first, then lines and words inside units that were replaced. Which lint rule a
change belongs to is settled here where its shape says so; a value in a text is left open (`rule`
None), because what it is shows only over the whole log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

from agentkv.engine.types import Reason
from agentkv.trace.causes import cues, pieces
from agentkv.trace.causes.change import Change, Comparison, Run
from agentkv.trace.causes.tools import tool_changes
from agentkv.trace.causes.units import Alignment, Block, Unit, align

CONTEXT = 300
"""Characters of text kept for an example."""


def compare(old: Sequence[Unit], new: Sequence[Unit], *, same_session: bool) -> Comparison:
    """Changes and runs of `new` against `old` (its answer included when it is of one session)."""
    return _Comparer(old, new, same_session).result()


class _Comparer:
    def __init__(self, old: Sequence[Unit], new: Sequence[Unit], same_session: bool) -> None:
        self.old_tools = [u for u in old if u.role == "tools"]
        self.new_tools = [u for u in new if u.role == "tools"]
        self.old = [u for u in old if u.role != "tools"]
        self.new = [u for u in new if u.role != "tools"]
        self.same = same_session
        self.changes: list[Change] = []
        self.runs: list[Run] = []
        self.closing = _closing(self.old, same_session)
        self.aligned: Alignment = align(self.old, self.new)

    def result(self) -> Comparison:
        changes, runs = tool_changes(self.old_tools, self.new_tools)
        self.changes += changes
        self.runs += runs
        for i, j in self.aligned.kept:
            self._stays(self.old[i], self.new[j], i)
        self._moved()
        for block in self.aligned.blocks:
            self._block(block)
        self.changes.sort(key=lambda c: c.at)
        self.runs.sort(key=lambda r: r.start)
        return Comparison(tuple(self.changes), tuple(self.runs))

    def _stays(self, old: Unit, new: Unit, i: int) -> None:
        self.runs.append(
            Run(
                new.start, new.end, new.role, i in self.closing, old.answer,
                text=new.text[:CONTEXT],
            )
        )  # fmt: skip

    # -- moved

    def _moved(self) -> None:
        moved = self.aligned.moved
        if moved and not self._one_set():
            moved = tuple((i, j) for i, j in moved if not _paper(self.new[j]))
        if not moved:
            return
        for i, j in moved:
            self._stays(self.old[i], self.new[j], i)
        news = [self.new[j] for _, j in moved]
        at = min(self._place_of(i, j) for i, j in moved)
        first = self._unit_at(at)
        was = self._old_at(moved)
        reason, rule, content = self._kind_of_move(moved)
        self.changes.append(
            Change(
                at, reason, rule, "reorder", first.name, first.role,
                was=was.text[:CONTEXT], now=first.text[:CONTEXT], content=content,
                closing=all(i in self.closing for i, _ in moved),
                detail=f"{len(news)} parts stand in another order",
                end=max(u.end for u in news),
            )
        )  # fmt: skip

    def _one_set(self) -> bool:
        """Whether both prompts hold much the same documents; else they are others, found anew."""
        old = {u.key for u in self.old if _paper(u)}
        new = {u.key for u in self.new if _paper(u)}
        return len(old & new) >= 0.6 * max(len(old), len(new))

    def _place_of(self, i: int, j: int) -> int:
        """Where the order parts: at the moved unit, or where what came behind it stands now."""
        behind = min((b for a, b in self.aligned.kept if a > i), default=len(self.new) - 1)
        # The head that both share is in order.
        return min(self.new[j].start, self.new[behind].start)

    def _unit_at(self, token: int) -> Unit:
        return next((u for u in self.new if u.start <= token < u.end), self.new[-1])

    def _old_at(self, moved: Sequence[tuple[int, int]]) -> Unit:
        return self.old[min(i for i, _ in moved)]

    def _kind_of_move(self, moved: Sequence[tuple[int, int]]) -> tuple[Reason, str | None, bool]:
        news = [self.new[j] for _, j in moved]
        roles = {u.role for u in news}
        mute = any(u.redacted for u in news)
        text = "\n".join(u.text[:400] for u in news)
        if any(u.kind == "document" or u.part_kind == "documents" for u in news):
            return "document_order", "KV306", False
        if any(u.part_kind == "examples" for u in news):
            return "text_changed", "KV308", False
        if mute:  # that the order is another one is all that is known
            moved_talk = self.same and len(moved) == 1 and "system" not in roles
            return ("history_edited" if moved_talk else "text_changed"), None, False
        if "assistant" in roles:
            return "text_changed", "KV308", False
        if "system" in roles:
            if cues.examples(text) and not cues.documents(text):
                return "text_changed", "KV308", False
            if cues.documents(text):
                return "document_order", "KV306", False
            return "text_changed", "KV303", False
        if self.same and len(moved) == 1 and not cues.documents(text):
            return "history_edited", "KV405", False
        if cues.examples(text) and not cues.documents(text):
            return "text_changed", "KV308", False
        return "document_order", "KV306", False

    # -- replaced, gone, come

    def _block(self, block: Block) -> None:
        olds, news = [self.old[i] for i in block.olds], [self.new[j] for j in block.news]
        place = self.new[block.place].start if block.place < len(self.new) else self._end()
        closing = bool(block.olds) and all(i in self.closing for i in block.olds)
        thoughts = [u for u in olds if u.kind == "reasoning"]
        if thoughts and not any(u.kind == "reasoning" for u in news):
            self._change(place, "reasoning_stripped", "KV406", "text", thoughts[0], None)
            olds = [u for u in olds if u.kind != "reasoning"]
        pairs, left_old, left_new = _pair(olds, news)
        talk_gone = [u for u in left_old if u.talk and not u.answer]
        if talk_gone and not block.last and self._truncated(block, talk_gone, news, place):
            return
        for a, b in pairs:
            self._replaced(a, b, block)
        gone = [u for u in left_old if not u.answer and u.kind != "reasoning"]
        if gone and not block.last:
            self._gone(gone, left_new, place, closing)
        elif left_new and not block.last:
            self._come(left_new, block)

    def _end(self) -> int:
        return self.new[-1].end if self.new else 0

    def _truncated(self, block: Block, gone: list[Unit], news: list[Unit], place: int) -> bool:
        """Whole messages are gone in front of messages that stayed."""
        first = min(block.olds)
        before = [a for a, _ in self.aligned.kept if a < first and self.old[a].talk]
        behind = [a for a, _ in self.aligned.kept if a > max(block.olds) and self.old[a].talk]
        if not behind:
            return False
        if not self.same and not _conversation(self.old, block.olds):
            return False
        results = all(u.role in ("tool", "function") or u.kind == "tool_result" for u in gone)
        texts = "\n".join(u.text[:400] for u in news)
        if any(u.redacted for u in gone) and not self._whole(gone):
            # Blocks of messages that are still there; thoughts may look so.
            self._change(place, "history_edited", None, "text", gone[0], news[0] if news else None,
                         detail="messages lost some of their blocks")  # fmt: skip
            return True
        if before and results and news:
            reason: Reason = "history_edited"
            rule, detail = "KV402", "earlier tool results were replaced"
        elif not before or len(before) <= 2:
            reason, rule = "history_truncated", "KV401"
            detail = f"{len(gone)} messages are gone from its beginning"
            if news and cues.summary(texts):
                detail += ", a summary stands in their place"
        else:
            reason, rule = "history_truncated", "KV408"
            detail = f"{len(gone)} messages are gone from its middle"
        self._change(place, reason, rule, "text", gone[0], news[0] if news else None,
                     now=self._unit_at(place).text, detail=detail)  # fmt: skip
        return True

    def _whole(self, gone: Sequence[Unit]) -> bool:
        """Whether nothing of the messages that these units were in is left."""
        parts, stayed = {u.part for u in gone}, {self.old[i].part for i, _ in self.aligned.kept}
        return not parts & stayed

    def _replaced(self, a: Unit, b: Unit, block: Block) -> None:
        i = self.old.index(a)
        closing = i in self.closing and not self._answered(b)
        first_user = b.role == "user" and self._is_first_talk(b)
        found = pieces.piece_changes(
            a, b, closing=closing, first_user=first_user, same_session=self.same,
            goes_on=any(u.role in ("assistant", "model") and u.start > b.start for u in self.new),
        )  # fmt: skip
        self.changes += found.changes
        self.runs += found.runs

    def _answered(self, unit: Unit) -> bool:
        """Whether the answer to the earlier prompt follows: then this is what was asked, reworded."""
        return self.same and any(
            self.old[i].answer and self.new[j].start > unit.start for i, j in self.aligned.kept
        )

    def _is_first_talk(self, unit: Unit) -> bool:
        first = next((u for u in self.new if u.talk), None)
        return first is not None and first.part == unit.part

    def _gone(self, gone: list[Unit], come: list[Unit], place: int, closing: bool) -> None:
        unit = gone[0]
        if all(_paper(u) for u in [*gone, *come]):
            self._change(place, "text_changed", None, "text", unit, come[0] if come else None,
                         content=True, closing=True)  # fmt: skip
        elif unit.role == "system":
            # Of another text in its place, a digest does not say what became of it.
            rule = None if unit.redacted and come else "KV204"
            self._change(place, "text_changed", rule, "text", unit, come[0] if come else None)
        elif closing or not self.same:
            self._change(place, "text_changed", None, "text", unit, come[0] if come else None,
                         content=True, closing=closing)  # fmt: skip
        else:
            # An answer without some of its blocks: thoughts, or anything.
            mute = unit.redacted and unit.role in ("assistant", "model")
            rule = None if mute else "KV402"
            self._change(place, "history_edited", rule, "text", unit, come[0] if come else None)

    def _come(self, come: list[Unit], block: Block) -> None:
        unit = come[0]
        behind = [a for a, _ in self.aligned.kept if self.new and _ >= block.place]
        only_closing = all(a in self.closing or self.old[a].answer for a in behind)
        if all(_paper(u) for u in come):
            self._change(unit.start, "text_changed", None, "text", None, unit,
                         content=True, closing=True)  # fmt: skip
        elif unit.role == "system" and not self._talk_before(block.place):
            self._change(unit.start, "text_changed", "KV204", "text", None, unit)
        elif self.same and not only_closing:
            kept = {self.new[j].part for _, j in self.aligned.kept}
            rule = None if unit.redacted and unit.part in kept else "KV405"
            self._change(unit.start, "history_edited", rule, "text", None, unit)
        else:
            # What follows was the end of the earlier prompt, and is its end again.
            self._change(unit.start, "text_changed", None, "text", None, unit,
                         content=True, closing=True)  # fmt: skip

    def _talk_before(self, place: int) -> bool:
        return any(u.talk for u in self.new[:place])

    def _change(
        self, at: int, reason: Reason, rule: str | None, kind: str,
        old: Unit | None, new: Unit | None, *, now: str | None = None, content: bool = False,
        closing: bool = False, detail: str = "",
    ) -> None:  # fmt: skip
        unit = new or old
        assert unit is not None
        if now is None:
            now = new.text if new is not None else ""
        name = unit.name
        if reason in ("history_truncated", "history_edited", "reasoning_stripped"):
            name = "messages"
        self.changes.append(
            Change(
                at, reason, rule, kind, name, unit.role,
                was=old.text[:CONTEXT] if old is not None else "", now=now[:CONTEXT],
                content=content, closing=closing, detail=detail,
                end=at if new is None else max(at, new.end),
            )
        )  # fmt: skip


def _paper(unit: Unit) -> bool:
    return unit.kind == "document" or unit.part_kind == "documents"


def _closing(old: Sequence[Unit], same: bool) -> frozenset[int]:
    """Units of the last turn (all behind the last word of the assistant, the answer aside); between
    sessions also those of the first turn: it is what a conversation is about."""
    out: set[int] = set()
    sent = [i for i, u in enumerate(old) if not u.answer]
    for i in reversed(sent):
        if old[i].role in ("assistant", "model") or (not old[i].talk and out):
            break
        if old[i].talk:
            out.add(i)
    if not same:
        for i in sent:
            if old[i].role in ("assistant", "model"):
                break
            if old[i].talk:
                out.add(i)
    return frozenset(out)


def _conversation(units: Sequence[Unit], olds: Sequence[int]) -> bool:
    """Whether the old prompt went on for some turns behind these units."""
    return sum(u.role in ("assistant", "model") for u in units) >= 2 and bool(olds)


def _pair(
    olds: Sequence[Unit], news: Sequence[Unit]
) -> tuple[list[tuple[Unit, Unit]], list[Unit], list[Unit]]:
    """Old and new units that stand for each other, by role and kind in order; and the rest."""
    a = [(u.role, u.kind, u.label if u.kind == "tool_call" else "") for u in olds]
    b = [(u.role, u.kind, u.label if u.kind == "tool_call" else "") for u in news]
    if a == b:
        return list(zip(olds, news, strict=True)), [], []
    numbers: dict[tuple[str, str, str], int] = {}
    ids = [[numbers.setdefault(t, len(numbers)) for t in side] for side in (a, b)]
    pairs: list[tuple[Unit, Unit]] = []
    for block in SequenceMatcher(None, ids[0], ids[1], autojunk=False).get_matching_blocks():
        pairs += [(olds[block.a + d], news[block.b + d]) for d in range(block.size)]
    used = Counter(id(u) for pair in pairs for u in pair)
    return (
        pairs,
        [u for u in olds if not used[id(u)]],
        [u for u in news if not used[id(u)]],
    )
