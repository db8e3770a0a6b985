"""`Threads`: which conversation a call belongs to, said by the log or inferred from its messages.

Inferred: a call goes on with the conversation whose last call it holds again. That may be all of it
(the history grew), its end (a window that slides), or its beginning and its end with something
else between (an edited message). A call that only shares a beginning is another branch, and starts
a conversation of its own. Bounded: the least recent conversations are forgotten.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from agentkv.trace.call import Call, Part, digest

THREADS = 4096
HOLDERS = 8
LOOKED_AT = 400
"""Of a prompt's last messages."""


@dataclass(frozen=True, slots=True)
class Placement:
    """`session`: the log's name, or `#n`. `named`: whether the log says so. `group`: the call site,
    one for all calls whose instructions are alike."""

    session: str
    named: bool
    group: str


@dataclass(slots=True)
class _Thread:
    session: str
    keys: list[str]
    answer: str | None
    head: str
    held: set[str] = field(default_factory=set)


class Threads:
    """Feed it the calls of a log in their order."""

    def __init__(self) -> None:
        self.count = 0
        """Conversations so far."""
        self._sites = _Sites()
        self._named: OrderedDict[str, None] = OrderedDict()
        self._threads: OrderedDict[str, _Thread] = OrderedDict()
        self._holders: OrderedDict[str, list[str]] = OrderedDict()

    def place(self, call: Call) -> Placement:
        """The conversation of a call; remembers the call."""
        group = self._sites.of(call)
        if call.session is not None:
            name = call.session
            if name not in self._named:
                self.count += 1
            self._named[name] = None
            self._named.move_to_end(name)
            while len(self._named) > 64 * THREADS:
                self._named.popitem(last=False)
            return Placement(name, True, group)
        if call.blocks is not None and not call.parts:
            self.count += 1
            return Placement(f"#{self.count}", False, group)
        keys = [_said(p) for p in call.parts if _is_talk(p)]
        found = self._continued(keys, group)
        if found is None:
            self.count += 1
            found = _Thread(f"#{self.count}", [], None, group)
        self._remember(found, call, keys, group)
        return Placement(found.session, False, group)

    def _continued(self, keys: list[str], group: str) -> _Thread | None:
        score: Counter[str] = Counter()
        for key in keys[-LOOKED_AT:]:
            for name in self._holders.get(key, ()):
                score[name] += 1
        best: _Thread | None = None
        best_rank: tuple[int, int, int, int] | None = None
        order = {name: i for i, name in enumerate(self._threads)} if score else {}
        for name in score:
            thread = self._threads.get(name)
            if thread is None:
                continue
            kept = goes_on(thread.keys, thread.answer, keys)
            if not kept:
                continue
            answered = thread.answer is not None and thread.answer in keys
            rank = (kept, int(answered), int(thread.head == group), order[name])
            if best_rank is None or rank > best_rank:
                best, best_rank = thread, rank
        return best

    def _remember(self, thread: _Thread, call: Call, keys: list[str], group: str) -> None:
        thread.keys = keys[-LOOKED_AT:]
        thread.head = group
        thread.answer = _answer(call)
        self._threads[thread.session] = thread
        self._threads.move_to_end(thread.session)
        held = set(thread.keys) | ({thread.answer} if thread.answer else set())
        for key in held:
            names = self._holders.pop(key, [])
            if thread.session not in names:
                names = [*names[-HOLDERS + 1 :], thread.session]
            self._holders[key] = names
        for key in thread.held - held:
            names = [n for n in self._holders.get(key, ()) if n != thread.session]
            if names:
                self._holders[key] = names
            else:
                self._holders.pop(key, None)
        thread.held = held
        while len(self._threads) > THREADS:
            _, old = self._threads.popitem(last=False)
            for key in old.held:
                names = [n for n in self._holders.get(key, ()) if n != old.session]
                if names:
                    self._holders[key] = names
                else:
                    self._holders.pop(key, None)


def goes_on(old: list[str], answer: str | None, new: list[str]) -> int:
    """How many messages of a conversation's last call a new call holds again, if it goes on with
    it; 0 if it does not.

    `answer`: the old call's reply, when it was logged.
    """
    if not old or not new:
        return 0
    if old == new:
        return len(old)  # asked once more
    there = set(new)
    kept = [k in there for k in old]
    count = sum(kept)
    if not count and (answer is None or answer not in there):
        return 0
    if answer is not None and answer in there:
        return count + 1
    if len(new) > len(old) and new[: len(old)] == old:
        return count
    if not kept[-1]:
        # What was asked last is gone. An edit leaves most of what follows it; a branch, and another
        # question to the same examples, leave nothing of it.
        before = 0
        while before < len(old) and kept[before]:
            before += 1
        after = count - before
        return count if after >= 2 or (before and after) else 0
    # The end is there: a window that slid, or something in front of it that was edited.
    tail = 0
    while tail < len(old) and kept[-1 - tail]:
        tail += 1
    if tail >= 2 or count >= 2:
        return count
    return count if len(old) == 1 and len(new) > 1 and new[0] == old[0] else 0


def _is_talk(part: Part) -> bool:
    return part.role in ("user", "assistant", "tool", "function", "model")


def _said(part: Part) -> str:
    """Who said what, without thoughts: clients drop those."""
    role = "assistant" if part.role == "model" else part.role
    said = [p.key for p in part.pieces if p.kind != "reasoning"]
    return digest("\0".join([role or "", *said]))


def _answer(call: Call) -> str | None:
    said = [p.key for p in call.answer if p.kind != "reasoning"]
    return digest("\0".join(["assistant", *said])) if said else None


SITES = 256
ALIKE = 0.6
"""Share of the shorter text's words that two texts of one call site have in common."""


class _Sites:
    """Call sites, told apart by the words of their instructions: a clock, an id or a name in them
    makes no other one. Where there are none, by the names of their tools, in any order."""

    def __init__(self) -> None:
        self._words: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._known: OrderedDict[str, str] = OrderedDict()

    def of(self, call: Call) -> str:
        first = next((p for p in call.parts if p.role in ("system", "developer")), None)
        if first is None:
            names = sorted(
                p.name or "" for part in call.parts if part.kind == "tools" for p in part.pieces
            )
            if names:
                return digest("\0".join(names))
            first = next((p for p in call.parts if p.role == "user"), None)
            if first is None:
                return ""
        known = self._known.get(first.key)
        if known is None:
            known = self._known[first.key] = self._nearest(first)
            while len(self._known) > 16 * SITES:
                self._known.popitem(last=False)
        return known

    def _nearest(self, part: Part) -> str:
        words = frozenset(w.lower() for w in _WORD.findall(part.text[:4000]))
        for name in reversed(self._words):
            other = self._words[name]
            least = min(len(words), len(other))
            if words == other or (least and len(words & other) >= ALIKE * least):
                return name
        self._words[part.key] = words
        while len(self._words) > SITES:
            self._words.popitem(last=False)
        return part.key


_WORD = re.compile(r"[^\W\d_]{3,}")
