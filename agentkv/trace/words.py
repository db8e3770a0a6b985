"""Texts as what they say, so that two renderings of one message can be known as the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Set
from typing import Any

LOOKED_AT = 3_000
"""Characters of a text whose words are compared."""

_WORD = re.compile(r"\w+")
_NOT_WORD = re.compile(r"\W+")
_SAYING = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]"
    r"|(?<![^\W_])[^\W\d_]{3,}(?![^\W_])"
)
"""A word without digits, or a character of a script that writes none apart."""


def plain(text: str) -> str:
    """Letters and digits only: without white space, punctuation, case and forms of Unicode."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return _NOT_WORD.sub("", text).casefold()


def unordered(text: str) -> str:
    """The words of a text, sorted: JSON with its keys in another order is the same."""
    return " ".join(sorted(_WORD.findall(text)))


def words_of(texts: Iterable[str]) -> frozenset[int]:
    """Hashes of the words of some texts. What holds a digit is left out (times, ids, counts)."""
    out: set[int] = set()
    left = LOOKED_AT
    for text in texts:
        out.update(map(hash, _SAYING.findall(text[:left].casefold())))
        left -= len(text)
        if left <= 0:
            break
    return frozenset(out)


def alike(a: Set[Any], b: Set[Any]) -> float:
    """Share of what two sets hold that both hold: 0 to 1; two empty ones are alike."""
    if not a and not b:
        return 1.0
    both = len(a & b)
    return both / (len(a) + len(b) - both)


def contained(a: Set[Any], b: Set[Any]) -> float:
    """Share of the smaller of two sets that the larger holds too; 0 where it is empty."""
    least = min(len(a), len(b))
    return len(a & b) / least if least else 0.0
