"""Tokens to text while they come, with stop strings.

    emitted text | held back | bytes of an incomplete character (in the token stream)

Held back is the longest end of the text that could still become a stop string, so never more than
the longest stop string less one character.
"""

from __future__ import annotations

from agentkv.engine.text.tokenizer import Tokenizer


class OutputText:
    """The text of one completion, token by token. Not shared between threads.

    Special tokens give no text. The first stop string to be complete ends the text (of two that
    end together, the longer one); nothing of it is emitted unless `include_stop`. How the text is
    cut into tokens makes no difference.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: tuple[str, ...] = (), include_stop: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._stream = tokenizer.stream()
        self._stop = tuple(stop)
        self._include_stop = include_stop
        self._ids: list[int] = []
        self._decoded = 0  # characters that the stream has given
        self._held = ""
        self._parts: list[str] = []
        self._finished = False
        self.stopped: str | None = None

    @property
    def text(self) -> str:
        """Everything emitted so far."""
        return "".join(self._parts)

    def feed(self, token_id: int) -> str:
        """The text that may be emitted now that `token_id` was sampled."""
        if self.stopped is not None or self._finished:
            return ""
        self._ids.append(token_id)
        new = self._stream.step(token_id)
        if not new:
            return ""
        self._decoded += len(new)
        return self._emit(self._advance(new))

    def finish(self) -> str:
        """The rest: what was held back, but nothing behind a stop string.

        An incomplete character at the end is dropped.
        """
        if self.stopped is not None or self._finished:
            return ""
        self._finished = True
        rest = self._tokenizer.decode(self._ids)[self._decoded :].rstrip("\ufffd")
        out = self._advance(rest) if rest else ""
        if self.stopped is None:
            out += self._held
            self._held = ""
        return self._emit(out)

    def _emit(self, text: str) -> str:
        if text:
            self._parts.append(text)
        return text

    def _advance(self, new: str) -> str:
        """Take `new` in and return what is certain to come before any stop string."""
        if not self._stop:
            return new
        text = self._held + new
        best: tuple[int, int, str] | None = None
        for stop in self._stop:
            begin = text.find(stop)
            if begin >= 0:
                match = (begin + len(stop), begin, stop)
                best = match if best is None else min(best, match)
        if best is not None:
            end, begin, self.stopped = best
            self._held = ""
            return text[: end if self._include_stop else begin]
        keep = max(self._overlap(text, stop) for stop in self._stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Length of the longest end of `text` that `stop` begins with, short of all of it."""
        longest = min(len(text), len(stop) - 1)
        for size in range(longest, 0, -1):
            if text.endswith(stop[:size]):
                return size
        return 0
