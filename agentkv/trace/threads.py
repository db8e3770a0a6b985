"""`Threads`: which conversation a call belongs to, said by the log or inferred from its messages.

Inferred: a call goes on with the conversation whose last call it holds again. That may be all of it
(the history grew), its end (a window that slides), or its beginning and its end with something
else between (an edited message). A call that only shares a beginning is another branch, and starts
a conversation of its own; unless its message at the place of the last question is that question in
other words (a clock in it moved on, its documents were dropped).

Messages are compared by what they say: white space, punctuation, key order, thoughts and the bytes
of pictures beside a text make no difference. Bounded: the least recent conversations are forgotten.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agentkv.trace.call import Call, Part, Piece
from agentkv.trace.sites import Sites
from agentkv.trace.words import alike, contained, plain, unordered, words_of

THREADS = 2048
BRANCHES = 16
"""Threads that are remembered of one named session."""
HOLDERS = 8
LOOKED_AT = 200
"""Of a prompt's last messages."""
FRESH = 24
"""Conversations of one call, per call site, that a longer one may go on with in other words."""
PIECES = 200_000
LONG_ENOUGH = 4
"""Words that a message must have to be known by some of them."""


@dataclass(frozen=True, slots=True)
class Placement:
    """`session`: the log's name, or `#n`. `named`: whether the log says so. `group`: the call site.
    `thread`: of a named session, the one of its conversations that this is (agents of several kinds
    often work under one name): the session's name for the first, then `name #2`; else as `session`.
    """

    session: str
    named: bool
    group: str
    thread: str


@dataclass(slots=True)
class _Thread:
    """The last call of a conversation."""

    session: str
    name: str
    keys: list[int] = field(default_factory=list)
    answer: int | None = None
    group: str = ""
    exact: int = 0
    """Of its last message, to the byte."""
    words: array[int] = field(default_factory=lambda: array("q"))
    """Of its last message, hashed; a set of them would be twenty times as large."""
    used: int = 0


class Threads:
    """Feed it the calls of a log in their order."""

    def __init__(self) -> None:
        self.count = 0
        """Conversations so far, by `session`."""
        self._sites = Sites()
        self._clock = 0
        self._named: OrderedDict[str, list[_Thread]] = OrderedDict()
        self._threads: OrderedDict[str, _Thread] = OrderedDict()
        self._holders: dict[int, tuple[str, ...]] = {}
        self._fresh: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._pieces: dict[str, int] = {}

    def place(self, call: Call) -> Placement:
        """The conversation of a call; remembers the call."""
        self._clock += 1
        group = self._sites.of(call)
        if call.session is not None:
            return self._in_session(call, call.session, group)
        if call.blocks is not None and not call.parts:
            self.count += 1
            return Placement(f"#{self.count}", False, group, f"#{self.count}")
        said = [p for p in call.parts if _is_talk(p)]
        keys = [self._key(p) for p in said]
        thread = self._best(self._candidates(keys), said, keys, group)
        if thread is None:
            thread = self._reworded(said, keys, group)
        if thread is None:
            self.count += 1
            thread = _Thread(f"#{self.count}", f"#{self.count}")
        self._forget(thread)
        self._update(thread, call, said, keys, group)
        self._remember(thread)
        return Placement(thread.session, False, group, thread.name)

    # -- named sessions

    def _in_session(self, call: Call, session: str, group: str) -> Placement:
        branches = self._named.get(session)
        if branches is None:
            self.count += 1
            branches = self._named[session] = []
            if len(self._named) > 2 * THREADS:
                self._named.popitem(last=False)
        self._named.move_to_end(session)
        said = [p for p in call.parts if _is_talk(p)]
        keys = [self._key(p) for p in said]
        thread = self._best(branches, said, keys, group)
        if thread is None:
            thread = max(
                (t for t in branches if t.group == group), key=lambda t: t.used, default=None
            )
        if thread is None:
            number = len(branches) + 1
            if number > BRANCHES:
                branches.remove(min(branches, key=lambda t: t.used))
                number = 1 + max(int(t.name.rpartition(" #")[2] or 1) for t in branches[1:])
            thread = _Thread(session, session if number == 1 else f"{session} #{number}")
            branches.append(thread)
        self._update(thread, call, said, keys, group)
        return Placement(session, True, group, thread.name)

    # -- inference

    def _candidates(self, keys: Sequence[int]) -> Iterable[_Thread]:
        score: Counter[str] = Counter()
        for key in keys[-LOOKED_AT:]:
            score.update(self._holders.get(key, ()))
        # Those that share most; a message that everybody sends brings many that share no other.
        return [self._threads[name] for name, _ in score.most_common(32) if name in self._threads]

    def _best(
        self, threads: Iterable[_Thread], said: Sequence[Part], keys: list[int], group: str
    ) -> _Thread | None:
        best: _Thread | None = None
        best_rank: tuple[int, bool, bool, int] | None = None
        there = set(keys)
        for thread in threads:
            if thread.keys == keys and len(keys) == 1 and thread.exact != _exact(said):
                continue  # one text with another picture, asked anew
            kept = goes_on(thread.keys, thread.answer, keys, there)
            if not kept and _same_words(thread, said, keys):
                kept = len(thread.keys)
            if not kept:
                continue
            answered = thread.answer is not None and thread.answer in there
            rank = (kept, answered, thread.group == group, thread.used)
            if best_rank is None or rank > best_rank:
                best, best_rank = thread, rank
        return best

    def _reworded(self, said: Sequence[Part], keys: list[int], group: str) -> _Thread | None:
        """A conversation of one message, which this call holds in other words and goes on with."""
        if len(said) < 2:
            return None
        found: list[tuple[float, int, _Thread]] = []
        words = words_of(p.text for p in said[0].pieces if p.kind != "image")
        for name in self._fresh.get(group, ()):
            thread = self._threads.get(name)
            if thread is None or len(thread.keys) != 1:
                continue
            old = frozenset(thread.words)
            if _reworded(old, words):
                found.append((alike(old, words), thread.used, thread))
        return max(found, key=lambda f: f[:2])[2] if found else None

    # -- memory

    def _update(
        self, thread: _Thread, call: Call, said: Sequence[Part], keys: list[int], group: str
    ) -> None:
        thread.keys = keys[-LOOKED_AT:]
        thread.answer = self._said("assistant", call.answer) if call.answer else None
        thread.group = group
        thread.exact = _exact(said)
        last = said[-1].pieces if said else ()
        thread.words = array("q", words_of(p.text for p in last if p.kind != "image"))
        thread.used = self._clock

    def _remember(self, thread: _Thread) -> None:
        name = thread.name
        self._threads[name] = thread
        self._threads.move_to_end(name)
        for key in _held(thread):
            self._holders[key] = (*self._holders.get(key, ())[-HOLDERS + 1 :], name)
        if len(thread.keys) == 1:
            fresh = self._fresh.setdefault(thread.group, OrderedDict())
            fresh[name] = None
            self._fresh.move_to_end(thread.group)
            if len(fresh) > FRESH:
                fresh.popitem(last=False)
            if len(self._fresh) > THREADS:
                self._fresh.popitem(last=False)
        while len(self._threads) > THREADS:
            self._forget(next(iter(self._threads.values())))

    def _forget(self, thread: _Thread) -> None:
        if self._threads.pop(thread.name, None) is None:
            return
        for key in _held(thread):
            left = tuple(n for n in self._holders.get(key, ()) if n != thread.name)
            if left:
                self._holders[key] = left
            else:
                self._holders.pop(key, None)
        self._fresh.get(thread.group, OrderedDict()).pop(thread.name, None)

    # -- messages

    def _key(self, part: Part) -> int:
        return self._said("assistant" if part.role == "model" else part.role or "", part.pieces)

    def _said(self, role: str, pieces: Sequence[Piece]) -> int:
        """Who said what, without thoughts, which clients drop."""
        texts = any(p.kind in ("text", "document", "tool_result") and p.size for p in pieces)
        return hash(
            (
                role,
                *(
                    p.kind if p.kind == "image" and texts else self._piece(p)
                    for p in pieces
                    if p.kind != "reasoning"
                ),
            )
        )

    def _piece(self, piece: Piece) -> int:
        found = self._pieces.get(piece.key)
        if found is None:
            if piece.redacted or piece.kind in ("image", "audio", "file"):
                found = hash(piece.key)
            elif piece.kind in ("tool_call", "tool"):
                found = hash((piece.name, unordered(piece.text)))
            else:
                # Without a letter or a digit, the text itself: a line of dots is not an empty one.
                found = hash(plain(piece.text) or piece.text)
            if len(self._pieces) >= PIECES:
                self._pieces.clear()
            self._pieces[piece.key] = found
        return found


def goes_on(old: Sequence[int], answer: int | None, new: Sequence[int], there: set[int]) -> int:
    """How many different messages of a conversation's last call a new call holds again, if it goes
    on with it; 0 if it does not.

    `answer`: the old call's reply, when it was logged. `there`: the set of `new`.
    """
    if not old or not new:
        return 0
    if old == new:
        return len(old)  # asked once more
    answered = answer is not None and answer in there
    count = len(there.intersection(old))
    if answered:
        return count + 1
    if not count:
        return 0
    if len(new) > len(old) and new[: len(old)] == old:
        return count
    if old[-1] not in there:
        # What was asked last is gone. An edit leaves most of what follows it; a branch, and another
        # question to the same examples, leave nothing of it.
        before = 0
        while before < len(old) and old[before] in there:
            before += 1
        after = len(there.intersection(old[before:]).difference(old[:before]))
        return count if after >= 2 or (before and after) else 0
    # The end is there: a window that slid, or something in front of it that was edited.
    if count >= 2:
        return count
    at = len(new) - 1 - list(reversed(new)).index(old[-1])
    slid = at == 0 and len(new) > 1
    edited = at == len(old) - 1 and len(new) > len(old)
    return count if slid or edited else 0


def _same_words(thread: _Thread, said: Sequence[Part], keys: Sequence[int]) -> bool:
    """Whether a call goes on with one whose last message it holds in other words, and whose other
    messages it holds as they were."""
    place = len(thread.keys) - 1
    if place < 1 or len(keys) <= place + 1 or thread.keys[:place] != keys[:place]:
        return False
    words = words_of(p.text for p in said[place].pieces if p.kind != "image")
    return _reworded(frozenset(thread.words), words)


def _reworded(old: frozenset[int], new: frozenset[int]) -> bool:
    if min(len(old), len(new)) < LONG_ENOUGH:
        return old == new and bool(old)
    return len(old ^ new) <= max(1, 0.12 * len(old | new)) or contained(old, new) >= 0.9


def _held(thread: _Thread) -> set[int]:
    held = set(thread.keys)
    if thread.answer is not None:
        held.add(thread.answer)
    return held


def _is_talk(part: Part) -> bool:
    return part.role in ("user", "assistant", "tool", "function", "model")


def _exact(said: Sequence[Part]) -> int:
    return hash(tuple(p.key for p in said[-1].pieces)) if said else 0
