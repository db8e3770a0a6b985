"""Why a call did not reuse more: compares a prompt with what its session sent before.

The engine knows at which token a prompt left the tree; this room knows which part of which earlier
prompt stood there. It says what is known and `unknown` otherwise; it never guesses. What it does
not know: text semantics, the user's intent, or other namespaces (looking there would tell one
tenant what another one sent). Of a session it does know that it was elsewhere before: with another
model (`model_changed`, also in another engine of this process) or in another namespace.

Bounded: the last `PER_SESSION` prompts of the last `SESSIONS` sessions, `TOKENS` ids in all; least
recent forgotten.
No torch here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agentkv.engine.kv.tree import Namespace
from agentkv.engine.types import IntArray, Miss, Reason, RenderedPrompt, Span

SESSIONS = 512
PER_SESSION = 4
RECENT = 64
TOKENS = 16_000_000
"""Of all remembered prompts and outputs together (64 MiB): a prompt may have 100,000."""
SNIPPET_TOKENS = 12

Decode = Callable[[IntArray], str]


def common_prefix(a: IntArray, b: IntArray) -> int:
    """Length of the longest common prefix of two int32 arrays."""
    n = min(len(a), len(b))
    if n == 0:
        return 0
    differs = a[:n] != b[:n]
    first = int(differs.argmax())
    return first if differs[first] else n


@dataclass(slots=True)
class Record:
    """One earlier call: its prompt, and the prompt with its output once that is known.

    `computed`: how many of these tokens had their K/V published when the call ended.
    """

    namespace: Namespace
    prompt: IntArray
    spans: tuple[Span, ...]
    full: IntArray
    computed: int = 0
    kept: bool = False
    """Whether it is remembered, and counted."""

    @property
    def earlier(self) -> Earlier:
        return Earlier(self.prompt, self.spans, self.full)


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier call was sent (`prompt`, and its spans), and `full`: with its output, where
    that is known."""

    prompt: IntArray
    spans: tuple[Span, ...] = ()
    full: IntArray | None = None

    @property
    def all(self) -> IntArray:
        return self.prompt if self.full is None else self.full


@dataclass(frozen=True, slots=True)
class Difference:
    """Why one prompt is not the other one grown longer.

    `at`: the first token that differs; None where the new prompt only grew (`appended`).
    """

    reason: Reason
    at: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reusable`: tokens in common with this session's earlier calls. `miss`: None if all that can
    be reused was."""

    reusable: int
    miss: Miss | None


class Whereabouts:
    """The namespace that each session was last seen in. Bounded and thread-safe."""

    def __init__(self, sessions: int = SESSIONS) -> None:
        self._limit = sessions
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, Namespace] = OrderedDict()

    def move(self, session: str, namespace: Namespace) -> Namespace | None:
        """Note where `session` is now; returns where it was, None for a new one."""
        with self._lock:
            before = self._seen.pop(session, None)
            self._seen[session] = namespace
            while len(self._seen) > self._limit:
                self._seen.popitem(last=False)
        return before

    def clear(self) -> None:
        """Forget every session."""
        with self._lock:
            self._seen.clear()

    def __len__(self) -> int:
        with self._lock:
            return len(self._seen)


EVERYWHERE = Whereabouts()
"""Of the process: a fallback to another model is another engine."""


class Explainer:
    """Remembers recent prompts by session. Thread-safe; every method is cheap (a few compares).

    `decode` turns token ids into text, special tokens included, for the snippets of a miss.
    `whereabouts`: shared with the other engines of the process unless given.
    """

    def __init__(
        self, decode: Decode | None = None, *, whereabouts: Whereabouts | None = None
    ) -> None:
        self._decode = decode
        self._whereabouts = EVERYWHERE if whereabouts is None else whereabouts
        self._sessions: OrderedDict[tuple[Namespace, str], deque[Record]] = OrderedDict()
        self._recent: deque[Record] = deque()
        self._tokens = 0
        self._lock = threading.Lock()

    def explain(
        self,
        prompt: RenderedPrompt,
        *,
        namespace: Namespace,
        session: str | None,
        matched: int,
        known: int,
        page_size: int,
        limit: int | None = None,
    ) -> tuple[Verdict, Record]:
        """Judge one admission, and remember its prompt (complete the record with `finished`).

        `matched`: tokens that came from the cache. `known`: tokens of the prompt that the tree has
        or had (tombstones included). `limit`: most tokens that were allowed to match, when less
        than `n - 1`.
        """
        with self._lock:
            previous = self._previous(prompt, namespace, session)
            record = self._remember(prompt, namespace, session)
        was_in = self._whereabouts.move(session, namespace) if session is not None else None
        moved = was_in is not None and previous is None and was_in != namespace
        shared = 0
        if previous is not None:
            shared = min(common_prefix(prompt.token_ids, previous.full), previous.computed)
        # What this session computed is known to have existed, even after a flush or long ago.
        known = max(known, shared)
        reusable = min(max(shared, matched), len(prompt.token_ids) - 1)
        most = len(prompt.token_ids) - 1 if limit is None else min(limit, len(prompt.token_ids) - 1)
        whole = matched >= most - most % page_size
        miss: Miss | None
        if whole and most < len(prompt.token_ids) - 1:
            miss = self._miss(
                prompt, matched, "unknown", None, None, "prompt log-probabilities need these tokens"
            )
        elif matched == most:
            miss = None
        elif whole and (previous is None or common_prefix(prompt.token_ids, previous.full) >= most):
            miss = self._miss(prompt, matched, "sub_page_tail", None, None)
        elif min(known, most) - min(known, most) % page_size > matched:
            miss = self._miss(prompt, matched, "evicted", None, None)
        elif moved:
            other_model = was_in is not None and _model(was_in) != _model(namespace)
            reason: Reason = "model_changed" if other_model else "other_namespace"
            miss = self._miss(prompt, matched, reason, None, None)
        elif previous is None:
            miss = self._miss(prompt, matched, "first_call", None, None)
        else:
            miss = self._compare(prompt, previous, matched, named=session is not None)
        return Verdict(reusable, miss), record

    def finished(self, record: Record, tokens: IntArray, computed: int) -> None:
        """Complete a record: prompt and output of its call, and how much of it has K/V."""
        with self._lock:
            if record.kept:
                self._tokens += len(tokens) - len(record.full)
            if len(tokens) >= len(record.prompt):
                # One array for both: what was sent begins with the prompt.
                record.prompt = tokens[: len(record.prompt)]
            record.full = tokens
            record.computed = computed
            self._trim()

    def forget(self) -> None:
        with self._lock:
            for records in [*self._sessions.values(), self._recent]:
                while records:
                    self._drop(records)
            self._sessions.clear()

    @property
    def tokens(self) -> int:
        """Ids that are remembered."""
        return self._tokens

    # -- which earlier call to compare with

    def _previous(
        self, prompt: RenderedPrompt, namespace: Namespace, session: str | None
    ) -> Record | None:
        candidates: Iterable[Record]
        if session is not None:
            candidates = self._sessions.get((namespace, session), ())
        else:
            candidates = [r for r in self._recent if r.namespace == namespace]
        best: Record | None = None
        best_score = (-1, -1)
        mine = {s.digest for s in prompt.spans if s.digest}
        for record in candidates:
            shared = common_prefix(prompt.token_ids, record.full)
            alike = sum(s.digest in mine for s in record.spans if s.digest)
            # Later records win ties: the candidates come oldest first.
            score = (alike, shared) if prompt.spans else (shared, 0)
            if score >= best_score:
                best, best_score = record, score
        if best is not None and session is None and best_score == (0, 0):
            return None
        return best

    def _remember(
        self, prompt: RenderedPrompt, namespace: Namespace, session: str | None
    ) -> Record:
        ids = prompt.token_ids
        record = Record(namespace, ids, prompt.spans, ids, kept=True)
        if session is None:
            records, most = self._recent, RECENT
        else:
            key = (namespace, session)
            records, most = self._sessions.setdefault(key, deque()), PER_SESSION
            self._sessions.move_to_end(key)
        records.append(record)
        self._tokens += len(ids)
        while len(records) > most:
            self._drop(records)
        self._trim()
        return record

    def _trim(self) -> None:
        """Forget the least recent until what is left is within its bounds. With the lock."""
        while len(self._sessions) > SESSIONS or (self._tokens > TOKENS and len(self._sessions) > 1):
            _, records = self._sessions.popitem(last=False)
            while records:
                self._drop(records)
        while self._tokens > TOKENS and len(self._recent) > 1:
            self._drop(self._recent)

    def _drop(self, records: deque[Record]) -> None:
        old = records.popleft()
        old.kept = False
        self._tokens -= len(old.full)

    # -- what differs

    def _compare(self, prompt: RenderedPrompt, old: Record, matched: int, *, named: bool) -> Miss:
        found = compare(prompt, old.earlier, decode=self._decode, named=named)
        before = old if found.at is not None else None
        return self._miss(prompt, matched, found.reason, before, found.at, found.detail)

    def _miss(
        self,
        prompt: RenderedPrompt,
        token: int,
        reason: Reason,
        old: Record | None,
        at: int | None,
        detail: str | None = None,
    ) -> Miss:
        span = _span_at(prompt.spans, token if at is None else max(at, token))
        was = now = None
        if old is not None and at is not None and self._decode is not None:
            a, b = max(0, at - SNIPPET_TOKENS // 2), at + SNIPPET_TOKENS
            was, now = self._decode(old.full[a:b]), self._decode(prompt.token_ids[a:b])
        return Miss(
            token=token,
            reason=reason,
            segment=span.name if span else None,
            was=was,
            now=now,
            detail=detail,
        )


def compare(
    prompt: RenderedPrompt, old: Earlier, *, decode: Decode | None = None, named: bool = True
) -> Difference:
    """Where and why `prompt` parts from an earlier one.

    `decode` turns ids into text, for what only the text can tell. `named`: the two are known to be
    of one session. The spans of both are used where there are any; without them all that can be
    said is where the ids part.
    """
    at = common_prefix(prompt.token_ids, old.all)
    here, there = _span_at(prompt.spans, at), _span_at(old.spans, at)
    if at >= len(old.prompt):
        return _after_prompt(prompt, old, at, decode)
    if here is None or there is None:
        return Difference("text_changed", at)
    if _only_tail_left(old.spans, prompt.spans, there):
        return _after_prompt(prompt, old, at, decode)
    if _moved_by_template(prompt.spans, old.spans):
        # What stood where the prompts part is what went elsewhere.
        part = there.name if there.digest in {s.digest for s in prompt.spans} else here.name
        detail = f"the chat template writes {part} elsewhere as the conversation grows"
        return Difference("template", at, detail)
    if here.digest and (here.name, here.digest) == (there.name, there.digest):
        return _rewritten(prompt, old, at, here, there, decode)
    if here.kind == "tools" or there.kind == "tools":
        return _tools(prompt, old, at)
    if here.kind == "documents" or there.kind == "documents":
        same_set = sorted(here.items) == sorted(there.items) or _same_kind_set(
            prompt.spans, old.spans, "documents"
        )
        ordered = same_set and here.digest != there.digest
        return Difference("document_order" if ordered else "text_changed", at)
    if here.kind == "template" and there.kind == "template":
        return Difference("template", at)
    if here.kind in ("history", "question") and there.kind in ("history", "question"):
        reason, words = _history(prompt, old)
        if reason == "first_call" and named:
            # One session that asks unrelated questions: what changed is the question.
            reason = "text_changed"
        return Difference(reason, at, words)
    return Difference("text_changed", at, _swapped(prompt, old, here))


def _after_prompt(
    prompt: RenderedPrompt, old: Earlier, at: int, decode: Decode | None
) -> Difference:
    """Everything that the old call was sent is still there: did its answer come back as it was?"""
    answered = old.all[len(old.prompt) :]
    got = at - len(old.prompt)
    if 0 <= got < len(answered) and decode is not None:
        was = decode(answered)
        now = decode(prompt.token_ids[len(old.prompt) :])
        if was and now.startswith(was):
            return Difference("retokenized", at)
        if was.strip() and "".join(now.split()).startswith("".join(was.split())):
            detail = "the answer came back with other white space"
            return Difference("history_edited", at, detail)
        if "</think>" in was and now.lstrip().startswith(was.split("</think>")[-1].strip()):
            return Difference("reasoning_stripped", at)
    return Difference("appended")


def _rewritten(
    prompt: RenderedPrompt, old: Earlier, at: int, here: Span, there: Span, decode: Decode | None
) -> Difference:
    """The caller sent one text under one name, and the template wrote it in two ways."""
    reason: Reason = "template"
    if decode is not None and there.role == "assistant":
        was = decode(old.all[there.start : there.end])
        now = decode(prompt.token_ids[here.start : here.end])
        if "</think>" in was and "</think>" not in now:
            reason = "reasoning_stripped"
    detail = f"the chat template writes {here.name} in another way than before"
    return Difference(reason, at, detail)


def _tools(prompt: RenderedPrompt, old: Earlier, at: int) -> Difference:
    now, was = _items(prompt.spans, "tools"), _items(old.spans, "tools")
    if now != was and sorted(now) == sorted(was):
        first = next(i for i, (a, b) in enumerate(zip(was, now, strict=True)) if a != b)
        return Difference("tool_order", at, f"tool {first + 1} was {was[first]}, is {now[first]}")
    added = [n for n in now if n not in was]
    gone = [n for n in was if n not in now]
    parts = [f"added {', '.join(added)}"] if added else []
    parts += [f"removed {', '.join(gone)}"] if gone else []
    return Difference("tool_changed", at, "; ".join(parts) or None)


def _history(prompt: RenderedPrompt, old: Earlier) -> tuple[Reason, str | None]:
    mine = [s.digest for s in prompt.spans if s.kind in ("history", "question")]
    theirs = [s.digest for s in old.spans if s.kind in ("history", "question")]
    if not set(mine) & set(theirs):
        return "first_call", None
    for drop in range(1, len(theirs)):
        # The old prompt's last message is its question, which need not have been kept.
        kept = theirs[drop:-1] if drop < len(theirs) - 1 else theirs[drop:]
        if kept == mine[: len(kept)]:
            return "history_truncated", f"{drop} messages are gone from its beginning"
    return "history_edited", None


def _swapped(prompt: RenderedPrompt, old: Earlier, here: Span) -> str | None:
    """Whether what stands here now stood under another name before, in words."""
    before = next((s for s in old.spans if here.digest and s.digest == here.digest), None)
    if before is None or before.name == here.name:
        return None
    return f"what is {here.name} now was {before.name} before"


def _model(namespace: Namespace) -> object:
    return next((p for p in namespace if isinstance(p, tuple) and p[:1] == ("model",)), None)


def _span_at(spans: tuple[Span, ...], token: int) -> Span | None:
    for span in spans:
        if span.start <= token < span.end:
            return span
    return spans[-1] if spans else None


def _items(spans: tuple[Span, ...], kind: str) -> tuple[str, ...]:
    return tuple(item for s in spans if s.kind == kind for item in s.items)


def _same_kind_set(mine: tuple[Span, ...], theirs: tuple[Span, ...], kind: str) -> bool:
    a = [s.digest for s in mine if s.kind == kind]
    b = [s.digest for s in theirs if s.kind == kind]
    return len(a) > 0 and sorted(a) == sorted(b)


def _moved_by_template(new: tuple[Span, ...], old: tuple[Span, ...]) -> bool:
    """Whether two parts that both prompts have, name and content, stand in two orders.

    `tools` and `messages[3]` are names by place in the request, so the caller sent these parts in
    one order both times, and the template put them in two. Names that the caller gave say nothing
    of an order.
    """
    mine = {
        (s.name, s.digest): i
        for i, s in enumerate(new)
        if s.digest and (s.name == "tools" or s.name.startswith("messages["))
    }
    places = [mine[key] for s in old if (key := (s.name, s.digest)) in mine]
    return places != sorted(places)


def _only_tail_left(old: tuple[Span, ...], new: tuple[Span, ...], there: Span) -> bool:
    """Is all that the old prompt held before `there` kept, and the rest of it made to be replaced?

    The generation prompt is replaced by the next assistant turn, and text declared to change each
    call or turn is replaced by its new version: prompts that differ only from there on have grown.
    """
    tail = old[old.index(there) :]
    replaced = all(
        s.kind in ("template", "context") or s.stability in ("call", "turn") for s in tail
    )
    head = [s.digest for s in old[: old.index(there)]]
    return replaced and head == [s.digest for s in new[: len(head)]]
