"""One choice's place in its grammar: which tokens may come next, and what was taken.

    allowed -> (sampler picks) -> settle -> allowed -> ...

`settle` has the last word: a token that would leave too few tokens to complete the output is
replaced by the next one of a way that fits (see `closing`).
"""

from __future__ import annotations

import re

import llguidance
import numpy as np
import torch

from agentkv.engine.run.closing import Closer
from agentkv.engine.run.grammar_shorter import shorter
from agentkv.engine.run.grammar_tokens import BoolArray

MAX_DIGITS = 20
"""Digits in a row of a number; a float64 has 17 that mean something."""
MAX_EXPONENT = 2
"""Digits of an exponent, which keeps every number finite."""
_GROWTH = 8
"""What a sampled token adds to the way to the end, beside beginning one more value."""
_TRIES = 8
_FAR = 4096
"""Tokens of a way that is still worth being shortened."""
_TAIL = 48
_RUN = re.compile(rb"([eE][+-]?)?([0-9]*)$")


class Matcher:
    """Not shared between threads.

    `allowed`: bool `[vocab]`, tokens that may come next. `done`: the output is complete, and
    nothing may follow. `error`: why the grammar cannot go on, or None; the choice must end then.
    `ends`: ids that end the choice; they are allowed exactly where the output is complete.
    `way`: tokens that complete the output from the start, or None when no such way fits.
    `jump`: the most tokens that beginning one more value can cost.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        closer: Closer,
        *,
        ends: frozenset[int],
        max_new: int,
        way: list[int] | None,
        jump: int,
    ) -> None:
        self._matcher = matcher
        self._closer = closer
        self._tokens = tokens = closer.tokens
        self._ends = sorted(i for i in ends if i < tokens.width)
        self._stops = [i for i in self._ends if i not in tokens.eos]
        self._left = max_new
        self._way = way
        self._jump = jump
        self._rest = self._quiet()
        self._tries = 0
        self._tail = b""
        self._words = np.empty(tokens.words, np.int32)
        self.allowed = torch.zeros(tokens.width, dtype=torch.bool)
        self._view: BoolArray = self.allowed.numpy()
        self.done = False
        self.error: str | None = None
        self._look()

    def settle(self, token: int) -> int | None:
        """Take `token` and return what was taken, or None: choose again, from a smaller `allowed`.

        What was taken is `token` itself, or one that brings the output to its end in time.
        """
        if self.error is not None:
            return token
        try:
            return self._settle(token)
        except BaseException as error:  # a panic of the grammar engine is no `Exception`
            self.error = f"{type(error).__name__}: {error}"[:200]
            return token

    def _settle(self, token: int) -> int | None:
        if token in self._ends and self._matcher.is_accepting():
            self.done = True
            return token
        way = self._way
        if self._rest > 0 or way is None:
            self._take(token)
            self._rest = max(0, self._rest - 1)
            if self._rest == 0 and self.error is None:
                self._way = self._closer.close(self._matcher, self._left, way or ())
                if self._way is None and way is not None:
                    self._way = self._search()
                self._rest = self._quiet()
        elif way and token == way[0]:
            self._take(token)
            self._way = way[1:]
            self._rest = self._quiet()
        elif not self._try(token, way):
            if not way:
                # Complete as it is, and this token would begin something that does not fit.
                return self._refuse(token)
            token, self._way = way[0], way[1:]
            self._take(token)
        self._tries = 0
        if self.error is None:
            self._look()
        return token

    def _search(self) -> list[int] | None:
        """A way that fits into what is left, where the first that comes to mind does not."""
        way = self._closer.close(self._matcher, _FAR, patient=True)
        if way is not None:
            way = shorter(self._closer, self._matcher, way)
        if way is None or len(way) > self._left:
            _, way = self._closer.search(self._matcher, self._left)
        return way

    def _take(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            self.error = f"token {token} does not fit it: {self._matcher.get_error()[:200]}"
        self._left -= 1
        self._tail = (self._tail + self._tokens.table.decode_bytes([token]))[-_TAIL:]

    def _try(self, token: int, way: list[int]) -> bool:
        """Take `token` if the output can still be completed behind it."""
        tail = self._tail
        self._take(token)
        if self.error is not None:
            return True
        limit = min(self._left, len(way) + self._jump + _GROWTH)
        found = self._closer.close(self._matcher, limit, way)
        if found is None:
            self._matcher.rollback(1)
            self._left, self._tail = self._left + 1, tail
            return False
        self._way = found
        self._rest = self._quiet()
        return True

    def _refuse(self, token: int) -> int | None:
        """Leave `token` out of what may be chosen now. After some of them only an end is left."""
        self._tries += 1
        self._view[token] = False
        if self._tries >= _TRIES:
            self._view[:] = False
        self._view[self._ends] = True
        if self._view.any():
            return None
        # No end may be sampled (`ignore_eos`): the output goes on, and will be cut.
        self._tries, self._way = 0, None
        self._take(token)
        if self.error is None:
            self._look()
        return token

    def _quiet(self) -> int:
        """How many tokens may be taken before someone must look whether a way to the end fits."""
        if self._way is None:
            return 0
        spare = self._left - len(self._way) - self._jump
        return max(0, spare // (self._jump + _GROWTH))

    def _look(self) -> None:
        """Find out what may come next."""
        matcher, view, tokens = self._matcher, self._view, self._tokens
        if matcher.is_stopped():
            self.done = not matcher.is_error()
            if not self.done:
                self.error = matcher.get_error()[:200]
            return
        bits = tokens.mask(matcher, self._words)
        if matcher.is_error():
            self.error = matcher.get_error()[:200]
            return
        complete = matcher.is_accepting()
        view[:] = False
        view[: len(bits)] = bits
        self._bound_digits(complete)
        if complete and not view.any():
            self.done = True
            return
        if not complete and self._stops:
            text = view[self._stops]
            view[self._stops] = False
            if not view.any():
                view[self._stops] = text
        if complete:
            # The last token: whole, unless a word, a number or a text was just going on.
            self.done = self._left <= 0 and not (view[: tokens.size] & tokens.words_on).any()
            view[self._ends] = True
        if not view.any():
            self.error = "no token of the model continues it"

    def _bound_digits(self, complete: bool) -> None:
        """End a number that has digits enough, where it can end; text is left alone."""
        found = _RUN.search(self._tail)
        assert found is not None  # an empty run is one, too
        room = (MAX_EXPONENT if found[1] else MAX_DIGITS) - len(found[2])
        tokens, view = self._tokens, self._view
        if room >= tokens.most_digits or tokens.in_free_text(view):
            return
        shorter = view[: tokens.size] & (tokens.digits <= max(room, 0))
        if complete or shorter.any():
            view[: tokens.size] = shorter
