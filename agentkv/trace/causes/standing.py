"""Which texts behind a turn's new words are there in call after call.

Two sets of documents that were found for two questions may have one in common, or the boilerplate of
one site: that is luck, no layout could promise it. A text that stands in the same role call after
call is part of the prompt, and is lost when something new is put in front of it.
"""

from __future__ import annotations

import re
from collections import OrderedDict

PHRASE = 6
"""Words of a phrase by which a text is known again, wherever a comparison happens to cut it."""
KEPT = 50_000
OFTEN = 0.2
"""Share of the calls in which a text must have stood to be one of the prompt's own."""
_WORD = re.compile(r"\w+")


class Standing:
    """Remembers phrases of texts that stayed behind new words; bounded, the oldest are forgotten."""

    def __init__(self) -> None:
        self._phrases: OrderedDict[int, int] = OrderedDict()
        self._calls = 0

    def knows(self, text: str, *, same: bool) -> bool:
        """Whether half of a text was there in other calls: in one of them, within a session
        (`same`), else often. True in the first call, which has none to be measured by."""
        if not self._calls:
            return True
        least = 1 if same else max(min(self._calls, 2), int(OFTEN * self._calls))
        phrases = _phrases(text)
        return sum(self._phrases.get(p, 0) >= least for p in phrases) * 2 >= len(phrases)

    def note(self, texts: list[str]) -> None:
        """What stayed in one call."""
        self._calls += 1
        for text in texts:
            for phrase in _phrases(text):
                self._phrases[phrase] = self._phrases.pop(phrase, 0) + 1
        while len(self._phrases) > KEPT:
            self._phrases.popitem(last=False)


def _phrases(text: str) -> list[int]:
    words = _WORD.findall(text.casefold())
    return list(
        {hash(tuple(words[i : i + PHRASE])) for i in range(max(1, len(words) - PHRASE + 1))}
    )
