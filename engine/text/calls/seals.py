"""Where control tokens stand in an answer's text, which does not show them."""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.engine.text.tokenizer import Tokenizer


class Seals:
    """Puts seals into an answer's text where control tokens were sampled.

    The text may lag behind the tokens (a stop string may hold it back), so places are counted in
    characters of the decoded tokens, which the text is a beginning of.
    """

    def __init__(self, seals: dict[int, str], tokenizer: Tokenizer) -> None:
        self._seals = seals
        self._stream = tokenizer.stream()
        self._decoded = 0
        self._taken = 0
        self._waiting: list[tuple[int, str]] = []

    def merge(self, text: str, token_ids: Sequence[int]) -> str:
        """`text` with the seals that belong into it or right behind it."""
        for token in token_ids:
            self._decoded += len(self._stream.step(token) or "")
            if token in self._seals:
                self._waiting.append((self._decoded, self._seals[token]))
        out: list[str] = []
        done = 0
        while self._waiting and self._waiting[0][0] <= self._taken + len(text):
            place, seal = self._waiting.pop(0)
            cut = place - self._taken
            out += (text[done:cut], seal)
            done = cut
        out.append(text[done:])
        self._taken += len(text)
        return "".join(out)
