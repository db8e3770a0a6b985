"""What grammars need to know of a tokenizer: the engine's table of its tokens, and some of our own.

Building takes a quarter of a second and some 20 MB, so it happens once, when first needed.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any, Protocol

import llguidance
import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]

_DIGITS = re.compile(r"[0-9]+")
_BYTE_DIGIT = re.compile(r"<0x3[0-9]>")
_CLOSERS = re.compile(r"[\]}]+")
_EMPTY = re.compile(r'(""|\[\]|\{\})[\]}]*')
_QUOTE = re.compile(r'"[\]}]*')
_OPEN = re.compile(r'"|[0-9]|n|nu|nul|null|t|tr|tru|true|f|fa|fal|fals|false|-|,|:|\[|\{')
_ENDS_ESCAPE = re.compile(r'[bfnrt"][^"\\]*("[^"\\]*)')
_ENDS_TEXT = re.compile(r'(?:[^"\\]*)("[^"\\]*)')
_OPENERS = 'ntf ,:["{-'
"""First characters of what begins a value or goes on, those that cost least first."""
_SPACE = "\u0120\u2581 "
_BLANK = "\u0120\u2581\u010a\u0109\u010d"
"""Characters by which vocabularies write white space; some are letters, which white space is not."""


class Vocabulary(Protocol):
    """What is asked of a tokenizer (`agentkv.engine.text.tokenizer.Tokenizer` has it)."""

    vocab_size: int
    eos_ids: frozenset[int]
    special_ids: frozenset[int]

    def to_json(self) -> str: ...

    def vocabulary(self) -> dict[str, int]: ...


class GrammarTokens:
    """`table`: llguidance's own. `width`: the model's vocabulary; `size`: how many of its ids are
    tokens (a model may have more rows than tokens, or fewer).

    `digits`: uint8 `[size]`, how many digits a token begins with. `in_text` and `in_structure`: ids
    to try, best first, when output is to end soon, inside a string of free text and elsewhere.
    `quotes`: tokens with a quote, by what they are from the quote on; `escaped`: the same of tokens
    that may stand behind a backslash; `escapes`: what may stand there by itself. `letters`: tokens that stand
    for any text. `exits`: tokens that may lead out of prose. `words_on`: bool `[size]`, tokens that
    begin with a letter or a digit, which lengthen a word or a number.
    """

    def __init__(self, tokenizer: Vocabulary, vocab_size: int, eos: frozenset[int]) -> None:
        vocabulary = tokenizer.vocabulary()
        known = sorted(eos & set(vocabulary.values()))
        # Without an end token of its own the table takes any special one; masks leave it out.
        self.table = llguidance.LLTokenizer(_declared(tokenizer), eos_token=known or None)
        self.width = vocab_size
        self.size = min(self.table.vocab_size, vocab_size)
        self.words = -(-self.table.vocab_size // 32)
        self.eos = sorted(i for i in {*known, *self.table.eos_tokens} if i < self.size)
        self.digits = np.zeros(self.size, np.uint8)
        self.words_on: BoolArray = np.zeros(self.size, np.bool_)
        text: list[tuple[int, int, int]] = []
        structure: list[tuple[int, int, int, int]] = []
        quotes: dict[bytes, list[int]] = {}
        escaped: dict[bytes, list[int]] = {}
        for token, i in vocabulary.items():
            if i >= self.size:
                continue
            self.words_on[i] = token[:1].isalnum() and token[0] not in _BLANK
            found = _DIGITS.match(token)
            if found or _BYTE_DIGIT.fullmatch(token):
                self.digits[i] = min(255, found.end() if found else 1)
            if '"' in token:
                for pattern, table in ((_ENDS_TEXT, quotes), (_ENDS_ESCAPE, escaped)):
                    if ending := pattern.fullmatch(token):
                        table.setdefault(ending[1].encode("utf-8"), []).append(i)
            core = token.lstrip(_SPACE)
            if token in _SPACE:
                structure.append((3, 10 + _OPENERS.index(" "), 0, i))
            if not core or not core.isascii() or len(token) - len(core) > 1:
                continue
            spaced = len(token) - len(core)
            if _QUOTE.fullmatch(token):
                text.append((-len(token), 0, i))
            if _CLOSERS.fullmatch(core):
                structure.append((0, -len(core), spaced, i))
            elif _EMPTY.fullmatch(core):
                structure.append((1, -len(core), spaced, i))
            elif core in ('"', ","):
                # A comma ends a number, which might go on and on.
                structure.append((2, int(core == ","), spaced, i))
            elif _OPEN.fullmatch(core):
                rank = int(core) if core.isdecimal() else 10 + _OPENERS.index(core[0])
                structure.append((3, rank, -len(token), i))
            elif _QUOTE.fullmatch(core):
                structure.append((4, len(core), spaced, i))
        self.in_text = np.array([row[-1] for row in sorted(text)], np.int64)
        self.in_structure = np.array([row[-1] for row in sorted(structure)], np.int64)
        self.quotes = {tail: np.array(ids, np.int64) for tail, ids in quotes.items()}
        self.escaped = {tail: np.array(ids, np.int64) for tail, ids in escaped.items()}
        self.escapes = [i for c in 'nbfrt"' if (i := vocabulary.get(c, self.size)) < self.size]
        self.most_digits = int(self.digits.max(initial=0))
        # What ends prose: control tokens, or the first characters of a mark.
        special = sorted(i for i in tokenizer.special_ids if i < self.size and i not in self.eos)
        marks = [vocabulary.get(t, self.size) for t in ("<", "</", "<|", "\u010a", "\n", "`", "[")]
        self._barred = {*tokenizer.special_ids, *self.eos}
        self.exits = np.array([i for i in (*special, *marks) if i < self.size], np.int64)
        self._lines = [vocabulary[t] for t in ("\u010a", "\n", "<0x0A>") if t in vocabulary]
        self.letters = [vocabulary[c] for c in "qzJ%" if vocabulary.get(c, self.size) < self.size]

    @cached_property
    def pieces(self) -> tuple[dict[bytes, int], int]:
        """Tokens of text by their bytes, and how many bytes the longest has."""
        found: dict[bytes, int] = {}
        for i in range(self.size):
            piece = self.table.decode_bytes([i])
            # 0xff begins what the table keeps apart from text, and is in no UTF-8.
            if piece and piece[0] != 0xFF and i not in self._barred:
                found.setdefault(piece, i)
        return found, max(map(len, found), default=1)

    @cached_property
    def single(self) -> npt.NDArray[np.int64]:
        """Tokens of one byte each, those that are no letters first."""
        found = [(piece.isalnum(), piece, i) for piece, i in self.pieces[0].items()]
        return np.array([i for *_, i in sorted(f for f in found if len(f[1]) == 1)], np.int64)

    def mask(self, matcher: llguidance.LLMatcher, words: npt.NDArray[np.int32]) -> BoolArray:
        """Tokens that may come next, end tokens not among them: bool `[size]`.

        `words`: int32 `[self.words]`, scratch."""
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        flat = np.unpackbits(words.view(np.uint8), bitorder="little", count=self.size)
        flat[self.eos] = 0
        return flat.view(np.bool_)

    def in_free_text(self, allowed: BoolArray) -> bool:
        """Is this the mask of a place where any text may stand?"""
        return bool(self.letters) and all(bool(allowed[i]) for i in self.letters)

    def in_escape(self, allowed: BoolArray) -> bool:
        """Is this the mask of a place behind a backslash, in a string where any text may stand?"""
        return bool(self.escapes) and all(bool(allowed[i]) for i in self.escapes)

    def in_prose(self, allowed: BoolArray) -> bool:
        """Is this the mask of a place where any text may stand, new lines included?

        They tell text outside of JSON from a JSON string, in which they are written `\\n`."""
        lines = any(bool(allowed[i]) for i in self._lines if i < self.size)
        return lines and self.in_free_text(allowed)

    def length(self, token: int) -> int:
        """Bytes that a token stands for."""
        return len(self.table.decode_bytes([token]))


def _declared(tokenizer: Vocabulary) -> str:
    """`tokenizer.json` in which every control token is declared special, as grammars must not take
    one for text."""
    text = tokenizer.to_json()
    control = tokenizer.special_ids
    if not control or not re.search(r'"special":\s*false', text):
        return text
    data: dict[str, Any] = json.loads(text)
    changed = False
    for token in data.get("added_tokens", ()):
        if token["id"] in control and not token["special"]:
            token["special"] = changed = True
    return json.dumps(data, ensure_ascii=False) if changed else text
