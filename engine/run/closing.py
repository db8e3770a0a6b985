"""Short ways to the end of a grammar: how output is completed before its tokens run out.

    {"name": "Ad|      3 tokens left; the way from here is `"`, `}`: 2 tokens, so one more may be free

`Closer.close` finds a way from where a matcher stands, fast: forced text is followed, and where
there is a choice, tokens that end things (quotes, brackets) go before those that begin things.
`Closer.search` looks at all ways, shortest first, which proves how many tokens are needed at least.
Both leave the matcher as it was, and give the same result for the same state.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import llguidance
import numpy as np
import numpy.typing as npt

from agentkv.engine.run.grammar_tokens import BoolArray, GrammarTokens

_STATES = 2048
_NUMBER = tuple(bytes([c]) for c in b"0123456789+-.eE")
_OFTEN = 8
"""How often a place is met before a way out of it is looked for."""
_LOOKS = 16
"""Of those, so many at most; each takes some 10 ms."""
_WIDE = 256
"""A state that allows more tokens than this is not searched through."""


class Closer:
    """Finds ways to the end of one grammar. Not bound to a matcher; safe to share.

    `marks`: token sequences that may end text that is no JSON string (`</think>`), likely ones
    first.
    """

    def __init__(self, tokens: GrammarTokens, marks: Sequence[Sequence[int]] = ()) -> None:
        self.tokens = tokens
        self._marks = [
            *([i] for i in tokens.letters[:1]),
            *(list(mark) for mark in marks),
            *([i] for i in tokens.exits.tolist()),
        ]

    def close(
        self,
        matcher: llguidance.LLMatcher,
        limit: int,
        known: Sequence[int] = (),
        *,
        patient: bool = False,
    ) -> list[int] | None:
        """At most `limit` tokens that complete the output (the end token is not among them), or
        None.

        `known`: a way that was right a token ago, which often still is, wholly or but for its first
        token. `patient`: look for a way out of patterns that go on and on, which takes a while.
        """
        tokens = self.tokens
        if matcher.is_accepting():
            return []
        for way in (known[1:], known):
            ended = [*way, tokens.table.eos_token]
            if 1 < len(ended) <= limit + 1 and matcher.validate_tokens(ended) == len(ended):
                return list(way)
        path: list[int] = []
        words = np.empty(tokens.words, np.int32)
        met: dict[bytes, int] = {}
        looks = _LOOKS if patient else 0
        while not matcher.is_accepting() and len(path) <= limit:
            step = matcher.compute_ff_tokens()
            if not step or max(step) >= tokens.size:
                allowed = tokens.mask(matcher, words)
                step = self._out_of_prose(matcher, allowed)
                if not step and looks:
                    place = np.packbits(allowed).tobytes()
                    met[place] = met.get(place, 0) + 1
                    if met[place] > _OFTEN:
                        looks -= 1
                        step = self._elsewhere(matcher, allowed, met)
                step = step or self._best(allowed)
            took = matcher.try_consume_tokens(step)
            if not took:
                break
            path += step[:took]
        found = matcher.is_accepting() and len(path) <= limit
        if path:
            matcher.rollback(len(path))
        return path if found else None

    def search(
        self, matcher: llguidance.LLMatcher, limit: int, *, narrow: bool = False
    ) -> tuple[int, list[int] | None]:
        """How many tokens every output from here has at least, and a short one.

        The second may be longer than the first where there was too much choice to look at all of
        it. It is None where none was found in a few thousand states, or none of at most `limit`
        tokens. `narrow`: look at few of the digits of numbers, which is much less work and proves
        nothing.
        """
        tokens = self.tokens
        words = np.empty(tokens.words, np.int32)
        todo: list[tuple[int, bytes, tuple[int, ...]]] = [(0, b"", ())]
        seen, strings = {b""}, set[bytes]()
        proven: int | None = None
        for _ in range(_STATES):
            if not todo or todo[0][0] > limit:
                break
            depth, text, path = heapq.heappop(todo)
            took = matcher.try_consume_tokens(list(path)) if path else 0
            done = took == len(path) and matcher.is_accepting()
            allowed = None if done or took < len(path) else tokens.mask(matcher, words)
            if took:
                matcher.rollback(took)
            if done:
                return (depth if proven is None else proven), list(path)
            if allowed is None:
                continue
            if b'"' in text and tokens.in_free_text(allowed) and not tokens.in_prose(allowed):
                # What the string begins with makes no difference any more, if it may end here.
                text = text[: text.rindex(b'"') + 1] + b"..."
                if text in strings and any(allowed[ids].any() for ids in tokens.quotes.values()):
                    continue
                strings.add(text)
            steps, all_of_them = self._steps(allowed)
            if narrow:
                steps = _without_digits(steps)
            if not all_of_them and proven is None:
                proven = depth + 1
            for step, piece in steps:
                if text + piece not in seen:
                    seen.add(text + piece)
                    heapq.heappush(todo, (depth + len(step), text + piece, (*path, *step)))
        if proven is None:
            proven = todo[0][0] if todo else 1
        return proven, None

    def choices(self, matcher: llguidance.LLMatcher) -> list[list[int]]:
        """What is worth a try where `matcher` stands; nothing where there is no choice."""
        forced = matcher.compute_ff_tokens()
        if matcher.is_accepting() or (forced and max(forced) < self.tokens.size):
            return []
        allowed = self.tokens.mask(matcher, np.empty(self.tokens.words, np.int32))
        steps = [step for step, _ in self._steps(allowed)[0]]
        single = self.tokens.single
        return steps or [[i] for i in single[allowed[single]].tolist()]

    def _steps(self, allowed: BoolArray) -> tuple[list[tuple[list[int], bytes]], bool]:
        """What is worth a look, with its bytes, and whether nothing else can be shorter.

        Inside a JSON string only its end matters, and what stands before that in the same token
        does not: it is left out of the bytes, so that many tokens count as one.
        """
        tokens = self.tokens
        if tokens.in_prose(allowed):
            marks = [mark for mark in self._marks if allowed[mark[0]]]
            return [(mark, tokens.table.decode_bytes(mark)) for mark in marks], False
        if tokens.in_free_text(allowed):
            ends = self._ends(tokens.quotes, allowed)
            return ends, bool(ends)
        if tokens.in_escape(allowed):
            return [([tokens.escapes[0]], b"n"), *self._ends(tokens.escaped, allowed)], True
        found = np.flatnonzero(allowed)
        if len(found) > _WIDE:
            return [], False
        return [([i], tokens.table.decode_bytes([i])) for i in found.tolist()], True

    def _ends(
        self, table: Mapping[bytes, npt.NDArray[np.int64]], allowed: BoolArray
    ) -> list[tuple[list[int], bytes]]:
        return [
            ([int(ids[allowed[ids]][0])], tail) for tail, ids in table.items() if allowed[ids].any()
        ]

    def _out_of_prose(self, matcher: llguidance.LLMatcher, allowed: BoolArray) -> list[int]:
        """In text that is no JSON string: what leads out of it, where something is found."""
        tokens = self.tokens
        if not tokens.in_prose(allowed):
            return []
        words = np.empty(tokens.words, np.int32)
        for mark in self._marks:
            took = matcher.try_consume_tokens(mark) if allowed[mark[0]] else 0
            out = took == len(mark) and (
                matcher.is_accepting() or not tokens.in_prose(tokens.mask(matcher, words))
            )
            if took:
                matcher.rollback(took)
            if out:
                return mark
        return []

    def _elsewhere(
        self, matcher: llguidance.LLMatcher, allowed: BoolArray, met: Mapping[bytes, int]
    ) -> list[int]:
        """In a pattern that goes on and on (names, up to an `@`): what leads to where the way was
        least often, if it was there less often than here."""
        tokens = self.tokens
        words = np.empty(tokens.words, np.int32)
        best, least = [], met[np.packbits(allowed).tobytes()]
        for token in tokens.single[allowed[tokens.single]].tolist():
            if not matcher.try_consume_tokens([token]):
                continue
            often = met.get(np.packbits(tokens.mask(matcher, words)).tobytes(), 0)
            matcher.rollback(1)
            if often < least:
                best, least = [token], often
        return best

    def _best(self, allowed: BoolArray) -> list[int]:
        """The token that may come next and is most likely to end the output soon (none: empty)."""
        tokens = self.tokens
        order = tokens.in_text if tokens.in_free_text(allowed) else tokens.in_structure
        found: list[int] = order[allowed[order]][:1].tolist()
        if not found:
            # A pattern, or a string that is too short: take long steps. Of many, some will do.
            ids = np.flatnonzero(allowed)
            some = ids[:: max(1, len(ids) // 256)].tolist()
            found = sorted(some, key=lambda i: (-tokens.length(i), i))[:1]
        return found


def _without_digits(steps: list[tuple[list[int], bytes]]) -> list[tuple[list[int], bytes]]:
    """A number that may end goes on no further; one that begins has one first digit."""
    digits = [step for step in steps if step[1].strip().isdigit()]
    others = [step for step in steps if step[1].strip()[:1] not in _NUMBER]
    if any(step[1][:1] in (b"}", b"]", b",") for step in others):
        return others
    return [*others, *digits[:1]] or steps
