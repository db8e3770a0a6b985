"""Text as token ids: by a tokenizer on this disk, else by a stand-in that is marked as an estimate.

The stand-in cuts text about as byte-pair encodings do and numbers the pieces by a hash, so that
equal texts have equal ids and lengths are near the truth. Ids are cached by the text's digest,
within a budget: in logs, most text has been seen before.
"""

from __future__ import annotations

import re
from array import array
from collections import OrderedDict
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from agentkv.engine.types import IntArray
from agentkv.trace.call import digest

CACHED_IDS = 4_000_000
CACHED_STARTS = 64
"""Texts whose tokens' places are held: a text is looked into several times in a row."""
RECENT = 8
VOCABULARY = 500_000
LONG = 64

_BITS = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]"
    r"| ?[^\W\d_]{1,9}"
    r"|[0-9]{1,3}"
    r"|\s*\n\s*"
    r"|[^\S\n]+"
    r"| ?[^\w\s]{1,3}"
    r"|\w"
    r"|."
)


class TokenizerUnusable(ValueError):
    """The tokenizer that was asked for cannot be used; the message says why."""


class Encoder:
    """`encode(text)` gives int32 ids. `exact`: whether they are a real tokenizer's."""

    def __init__(self, tokenizer: str | Path | None = None) -> None:
        self._words = _Words()
        self._cache: OrderedDict[str, IntArray] = OrderedDict()
        self._cached = 0
        self._starts: OrderedDict[str, array[int]] = OrderedDict()
        self._bits: dict[str, list[str]] = {}
        self._encode: Callable[[str], IntArray]
        self._real: Any = None
        if tokenizer is None:
            self.name, self.exact = "estimate", False
            self._encode = self._stand_in
        else:
            path, real = _load(Path(tokenizer))
            self._real = real
            self.name, self.exact = str(path), True
            self._encode = lambda text: np.array(
                real.encode(_whole(text), add_special_tokens=False).ids, dtype=np.int32
            )

    def encode(self, text: str, key: str | None = None) -> IntArray:
        """Ids of a text: int32 `[n]`, not to be written to. `key` stands for it in the cache."""
        if not text:
            return _NONE
        # No key looks so as a text does here, and a long text is not kept for its own sake.
        name = key or "\0" + (text if len(text) < LONG else digest(text))
        found = self._cache.get(name)
        if found is not None:
            self._cache.move_to_end(name)
            return found
        ids = self._encode(text)
        if len(ids) < CACHED_IDS // 4:
            self._cache[name] = ids
            self._cached += len(ids)
            while self._cached > CACHED_IDS:
                _, old = self._cache.popitem(last=False)
                self._cached -= len(old)
        return ids

    def starts(self, text: str, key: str, before: str = "", behind: str = "") -> array[int]:
        """The character at which each token of `encode(before + text + behind, key)` starts: `[n]`,
        rising."""
        found = self._starts.get(key)
        if found is not None:
            self._starts.move_to_end(key)
            return found
        text = f"{before}{text}{behind}"
        if self._real is not None:
            offsets = self._real.encode(_whole(text), add_special_tokens=False).offsets
            found = array("i", [start for start, _ in offsets])
        else:
            # What is looked into was most often encoded just now.
            bits = self._bits.get(text) or _BITS.findall(text)
            found = array("i", accumulate(map(len, bits), initial=0))
            found.pop()
        self._starts[key] = found
        while len(self._starts) > CACHED_STARTS:
            self._starts.popitem(last=False)
        return found

    def decode(self, ids: IntArray) -> str:
        """The text of ids that this encoder gave; a stretch of ids that stand for no text (a
        picture, a redacted piece, a control token) is one `…`."""
        text_of = {} if self._real else {number: bit for bit, number in self._words.items()}
        out: list[str] = []
        start = 0
        numbers = [int(i) for i in ids]
        while start < len(numbers):
            end = start
            while end < len(numbers) and (numbers[end] < 0) == (numbers[start] < 0):
                end += 1
            run = numbers[start:end]
            if run[0] < 0:
                out.append("…")
            elif self._real is not None:
                out.append(self._real.decode(run, skip_special_tokens=False))
            else:
                out += [text_of.get(i, "…") for i in run]
            start = end
        return "".join(out)

    def _stand_in(self, text: str) -> IntArray:
        if len(self._words) > VOCABULARY:
            self._words.clear()
        bits = _BITS.findall(text)
        self._bits[text] = bits
        while len(self._bits) > RECENT:
            del self._bits[next(iter(self._bits))]
        out = array("i", map(self._words.__getitem__, bits))
        return np.frombuffer(out, dtype=np.int32) if len(out) else _NONE


class _Words(dict[str, int]):
    """The number of each bit of text, made where it is first asked for."""

    def __missing__(self, bit: str) -> int:
        number = self[bit] = crc32(bit.encode("utf-8", "surrogatepass")) & 0x7FFFFFFF
        return number


def special(name: str) -> IntArray:
    """One id that stands for a control token, or for anything that no text can be."""
    return np.array([-1 - (crc32(name.encode()) & 0x7FFFFFFE)], dtype=np.int32)


def opaque(key: str, count: int) -> IntArray:
    """`count` ids that stand for something that is no text (an image, a redacted piece): the same
    for the same key, and for no other."""
    start = crc32(key.encode())
    steps = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B1) + np.uint64(start)
    return (-1 - (steps % np.uint64(0x7FFFFFFE)).astype(np.int64)).astype(np.int32)


def _load(given: Path) -> tuple[Path, Any]:
    path = given.expanduser()
    if path.is_dir():
        path = path / "tokenizer.json"
    if not path.is_file():
        raise TokenizerUnusable(f"there is no tokenizer file at {path}.")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise TokenizerUnusable(
            f"reading {path} needs the package `tokenizers`: pip install tokenizers."
        ) from error
    try:
        found = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exceptions
        raise TokenizerUnusable(f"{path} is no tokenizer.json: {error}") from error
    found.no_truncation()
    found.no_padding()
    return path, found


def _whole(text: str) -> str:
    """Half a surrogate pair (logs cut strings anywhere) is no text for a tokenizer."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode(
        "utf-16", "replace"
    )  # fmt: skip


_NONE = np.empty(0, dtype=np.int32)
