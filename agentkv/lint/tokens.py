"""How tokens are counted: by a tokenizer that is at hand, else by an estimate that says so.

Nothing here uses a network. `tiktoken` downloads its tables when they are missing, so it is asked
only when the table is already in its cache folder, with the right content, and its download
function is switched off while it loads.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha1, sha256
from math import ceil
from pathlib import Path
from typing import Any


class TokenizerError(ValueError):
    """The tokenizer that was asked for cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Counter:
    """`count` gives the tokens of a text; `name` says by what, `exact` whether by a tokenizer."""

    count: Callable[[str], int]
    name: str
    exact: bool


_TABLES = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


def counter(tokenizer: str | None = None) -> Counter:
    """The best count at hand: `tokenizer` if given, a cached tiktoken table, else the estimate.

    Tokenizers are loaded at the first count. Raises `TokenizerError` when `tokenizer` is given
    and cannot be used.
    """
    if tokenizer is not None:
        path = tokenizer_file(tokenizer)
        return Counter(_lazily(partial(_local, path)), str(path), True)
    for name, digest in _TABLES.items():
        if _cached(name, digest):
            return Counter(_lazily(partial(_tiktoken, name)), f"tiktoken {name}", True)
    return Counter(lru_cache(maxsize=4096)(estimate), "estimate", False)


def tokenizer_file(given: str) -> Path:
    """The `tokenizer.json` that a path means. Raises `TokenizerError`."""
    path = Path(given).expanduser()
    if path.is_dir():
        path = path / "tokenizer.json"
    if not path.is_file():
        raise TokenizerError(f"there is no tokenizer file at {path}.")
    from importlib.util import find_spec

    if find_spec("tokenizers") is None:
        raise TokenizerError(
            f"reading {path} needs the package `tokenizers`: pip install tokenizers."
        )
    return path


# -- estimate --------------------------------------------------------------------------------------

_CHUNKS = re.compile(
    r"(?P<word>[A-Za-z]+)"
    r"|(?P<number>[0-9]+)"
    r"|(?P<newline>\s*\n\s*)"
    r"|(?P<space>[^\S\n]+)"
    r"|(?P<cjk>[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]+)"
    r"|(?P<hangul>[\u1100-\u11ff\uac00-\ud7af]+)"
    r"|(?P<emoji>[\u2600-\u27bf\U0001f000-\U0001faff]+)"
    r"|(?P<mark>[!-/:-@\[-`{-~]+)"
    r"|(?P<other>[^\W\d_]+)"
    r"|(?P<rest>.)",
    re.DOTALL,
)


def estimate(text: str) -> int:
    """Tokens of a text without a tokenizer.

    A sum over runs of characters, with weights fitted to what byte-pair vocabularies of 100k to
    200k entries do: a word of Latin letters is one token up to seven letters and one more for
    every five beyond; digits go in threes, punctuation in pairs, line breaks with their
    indentation are one, a single space belongs to the word behind it; a Chinese or Japanese
    character is 0.8 tokens, a Hangul syllable 0.75, a letter of another script 0.4, an emoji 2.
    """
    total = 0.0
    for chunk in _CHUNKS.finditer(text):
        n = chunk.end() - chunk.start()
        match chunk.lastgroup:
            case "word":
                total += 1 if n <= 7 else 1 + ceil((n - 7) / 5) * 0.7
            case "number":
                total += ceil(n / 3)
            case "newline":
                total += 1
            case "space":
                total += 0 if n == 1 else 1
            case "cjk":
                total += 0.8 * n
            case "hangul":
                total += 0.75 * n
            case "emoji":
                total += 2 * n
            case "mark":
                total += ceil(n / 2)
            case "other":
                total += max(1.0, 0.4 * n)
            case _:
                total += 1
    return ceil(total)


# -- tokenizers ------------------------------------------------------------------------------------


def _lazily(load: Callable[[], Callable[[str], int]]) -> Callable[[str], int]:
    loaded: list[Callable[[str], int]] = []

    @lru_cache(maxsize=4096)
    def count(text: str) -> int:
        if not loaded:
            loaded.append(load())
        return loaded[0](text)

    return count


def _local(path: Path) -> Callable[[str], int]:
    from tokenizers import Tokenizer

    try:
        tokenizer: Any = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exceptions
        raise TokenizerError(f"{path} is not a tokenizer file: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _cached(name: str, digest: str) -> Path | None:
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder == "":
        return None  # its way of saying: no cache
    path = Path(folder or Path(tempfile.gettempdir(), "data-gym-cache"))
    path = path / sha1(_URL.format(name).encode()).hexdigest()
    try:
        return path if sha256(path.read_bytes()).hexdigest() == digest else None
    except OSError:
        return None


def _tiktoken(name: str) -> Callable[[str], int]:
    import tiktoken
    import tiktoken.load

    def offline(blobpath: str) -> bytes:
        raise OSError(f"not at hand: {blobpath}")

    fetch = tiktoken.load.read_file
    tiktoken.load.read_file = offline
    try:
        encoding = tiktoken.get_encoding(name)
    except OSError:
        return estimate
    finally:
        tiktoken.load.read_file = fetch
    return lambda text: len(encoding.encode(text, disallowed_special=()))
