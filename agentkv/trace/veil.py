"""`Veil`: a text in which every word, number and id is another one of the same shape.

Each is replaced by a keyed permutation of all that have its shape (a Feistel network over the
positions of its letters and digits, four rounds): equal ones stay equal, different ones different,
and without the key none can be had back. Lengths, case, accents, punctuation and white space stay,
so that tokens are counted as before. What also stays, because reports tell causes apart by it:
words that label something (`Question`, `step`, `user`; see `is_label`), names of months and days,
words of JSON Schema, and numbers of one or two digits; years are moved by a secret number.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b, shake_128

from agentkv.trace.causes import cues
from agentkv.trace.causes.values import kind_of

WORDS = 200_000
LINES, LINE = 50_000, 1_000
"""Veiled lines that are kept, and how long one may be for it."""
ROUNDS = 4

_MARKS = "\u0300-\u036f"
_HIDDEN = "\u00ad\u200b-\u200d\u2060\ufeff"
_TOKEN = re.compile(
    r"(?P<escape>\\[nrtbf\"'\\/])"
    r"|(?P<code>\\u[0-9a-fA-F]{4})"
    r"|(?P<uuid>(?<![\w-])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![\w-]))"
    r"|(?P<iso>(?<![\w.])\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?<![\w.])(?:19|20)\d{6}[T_-]?\d{4,6}Z?(?!\w))"
    r"|(?P<unit>(?<![A-Za-z0-9])\d{1,2}(?:[ap]m|[AP]M|h\d\d|h|st|nd|rd|th|s|m|ms|Z)(?![A-Za-z0-9]))"
    r"|(?P<pairs>(?<![\d.,-])\d\d(?:[ .-]\d\d){3,}(?![\d.,-]))"
    r"|(?P<mixed>(?:[A-Za-z]+[0-9]|[0-9]+[A-Za-z])[A-Za-z0-9]*)"
    r"|(?P<number>[0-9]+)"
    rf"|(?P<word>(?:[^\W\d_][{_MARKS}{_HIDDEN}]*)+)"
    r"|(?P<other>\d+|[\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0dff\u0e31-\u0e4e"
    r"\u0eb1-\u0ece\u1000-\u109f\u1780-\u17ff])"
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_JSON = re.compile(rf"{_STRING.pattern}|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_YEAR = re.compile(r"(?:19|20)\d\d(?:(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:\d{4}|\d{6})?)?")
"""Alone, or in front of a month, a day and perhaps a time."""
_NUMBERED = re.compile(r"([A-Za-z]{2,})([0-9]{1,2})")

_LABELS = frozenset(
    re.findall(
        r"\w+",
        """
    so far previous conversation earlier part messages few shot facts known about format of your
    respond only with in output search results on behalf talking speaking chatting to assistant for
    helping assist help number requests at um de is are now today time date uhr am pm utc gmt cet
    cest est edt pst pdt zulu md pdf txt htm html doc docx http https www data image png jpeg jpg
    webp gif type function name description parameters properties required string number integer
    boolean object array items enum default strict null true false input schema anyof oneof allof
    additionalproperties format title const ref think thinking thought reasoning reflection
    scratchpad score relevance similarity distance rank usd eur gbp chf rating rated
    """,
    )
)


@lru_cache(maxsize=WORDS)
def is_label(word: str) -> bool:
    """Whether a word says what a text is for, or is part of a date: such words stay."""
    bare = word.casefold()
    if bare in _LABELS:
        return True
    if len(bare) > 14:
        return False
    for tells in (
        cues.examples, cues.documents, cues.answer_format, cues.user, cues.counter, cues.ids,
        cues.host, cues.memory, cues.summary,
    ):  # fmt: skip
        if tells(f"{bare}:"):
            return True
    return cues.question(f"{bare}:", "") or cues.question("", bare) or _of_date(bare)


def _of_date(word: str) -> bool:
    return kind_of(f"{word} 3, 2021") == "date" or kind_of(word) == "date"


class Veil:
    """`key`: secret bytes. Texts under one key can be compared with each other."""

    def __init__(self, key: bytes) -> None:
        self._key = blake2b(key, digest_size=32).digest()
        self._years = 1 + self._stream(b"years", 1)[0] % 99
        self._shown = lru_cache(maxsize=WORDS)(self._replaced)
        self._known = lru_cache(maxsize=LINES)(self._line)

    def digest(self, text: str) -> str:
        """16 hex characters that stand for a name or an id."""
        raw = text.encode("utf-8", "surrogatepass")
        return blake2b(raw, key=self._key, digest_size=8).hexdigest()

    def text(self, text: str) -> str:
        """The veiled text: as long as it was (JSON may lose escapes that it need not have)."""
        if text.lstrip()[:1] in ("{", "["):
            try:
                json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                return _JSON.sub(lambda m: self._literal(m[0]), text)
        return self._plain(text)

    def _plain(self, text: str) -> str:
        # By lines: no token spans two, and most lines of a log were there before.
        return "\n".join(
            [
                self._known(line) if len(line) < LINE else self._line(line)
                for line in text.split("\n")
            ]
        )

    def _line(self, line: str) -> str:
        return _TOKEN.sub(lambda m: self._shown(m.lastgroup or "", m[0]), line)

    def _literal(self, literal: str) -> str:
        """A string or a number of JSON."""
        if literal[0] != '"':
            return re.sub(
                r"(?<![eE])(?<![eE][+-])[0-9]+", lambda m: self._shown("number", m[0]), literal
            )
        veiled = self._plain(json.loads(literal))
        return json.dumps(veiled, ensure_ascii=literal.isascii() and "\\u" in literal)

    # -- one token

    def _replaced(self, kind: str, token: str) -> str:
        match kind:
            case "escape" | "unit":
                return token
            case "code":
                return "\\u" + self._hex(token[2:])
            case "uuid":
                return self._hex(token)
            case "iso":
                return re.sub(r"[0-9]+", lambda m: self._number(m[0]), token)
            case "pairs":
                return self._spread(token)
            case "mixed":
                return self._mixed(token)
            case "number":
                return self._number(token)
            case "word":
                return self._word(token)
            case _:
                return self._spread(token)

    def _number(self, digits: str) -> str:
        if len(digits) <= 2:
            return digits
        if _YEAR.fullmatch(digits):
            year = (int(digits[2:4]) + self._years) % 100
            return f"{digits[:2]}{year:02}{digits[4:]}"
        moved = self._moved(digits)
        while _YEAR.fullmatch(moved):
            moved = self._moved(moved)  # a year is the image of a year, and of nothing else
        return moved

    def _moved(self, digits: str) -> str:
        """Other digits; a number that does not begin with 0 does not afterwards either."""
        kept = 2 if len(digits) in (10, 13, 16, 19) and "15" <= digits[:2] <= "21" else 0
        rest = digits[kept:]
        first = rest[0] if kept or rest[0] == "0" else ""
        if first:
            return digits[: kept + 1] + self._spread(rest[1:])
        symbols = [int(rest[0]) - 1, *(int(d) for d in rest[1:])]
        moved = self._permuted(symbols, [9, *[10] * (len(rest) - 1)])
        return str(moved[0] + 1) + "".join(map(str, moved[1:]))

    def _mixed(self, token: str) -> str:
        found = _NUMBERED.fullmatch(token)
        if found is not None:
            return self._word(found[1]) + found[2]
        if token[:2] in ("0x", "0X"):
            return token[:2] + (self._hex(token[2:]) if token[2:] else "")
        if re.fullmatch(r"[0-9a-fA-F]+", token):
            return self._hex(token)
        return self._spread(token)

    def _hex(self, token: str) -> str:
        """Digits become digits, a to f become a to f."""
        return self._spread(token, "abcdef")

    def _word(self, word: str) -> str:
        bare = re.sub(f"[{_HIDDEN}]", "", word)
        if is_label(unicodedata.normalize("NFC", bare)):
            return word
        for _ in range(50):
            word = self._spread(word)
            if not is_label(unicodedata.normalize("NFC", re.sub(f"[{_HIDDEN}]", "", word))):
                break  # a label is its own image, so no other word may become one
        return word

    def _spread(self, token: str, letters: str = "abcdefghijklmnopqrstuvwxyz") -> str:
        """Permute the letters and digits of a token within their kinds; the rest stays."""
        parts = _clusters(token)
        symbols: list[int] = []
        alphabets: list[str] = []
        for base, marks, _ in parts:
            alphabet = _alphabet(base.lower() if len(base.lower()) == 1 else base, marks, letters)
            symbol = alphabet.find(base.lower() if len(base.lower()) == 1 else base)
            symbols.append(max(symbol, 0))
            alphabets.append(alphabet if symbol >= 0 else base)
        moved = self._permuted(symbols, [len(a) for a in alphabets])
        out: list[str] = []
        for (base, marks, rest), alphabet, symbol in zip(parts, alphabets, moved, strict=True):
            new = alphabet[symbol]
            if base.isupper() and len(new.upper()) == 1:
                new = new.upper()
            composed = unicodedata.normalize("NFC", new + marks)
            joined = rest.startswith("\0")
            out.append((composed if joined and marks else new + marks) + rest.removeprefix("\0"))
        return "".join(out)

    def _permuted(self, symbols: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """A permutation of all sequences of these sizes: symbol i is below `sizes[i]`."""
        out = list(symbols)
        shape = b"".join(n.to_bytes(2, "big") for n in sizes)
        free = [i for i, n in enumerate(sizes) if n > 1]
        if len(free) == 1:
            i = free[0]
            out[i] = (out[i] + 1 + self._stream(b"one" + shape, 1)[0] % (sizes[i] - 1)) % sizes[i]
            return out
        half = len(free) // 2
        sides = (free[:half], free[half:])
        for turn in range(ROUNDS):
            target, source = sides[turn % 2], sides[1 - turn % 2]
            seed = b"".join(out[i].to_bytes(2, "big") for i in source)
            stream = self._stream(bytes([turn]) + shape + seed, 4 * len(target))
            for n, i in enumerate(target):
                out[i] = (out[i] + int.from_bytes(stream[4 * n : 4 * n + 4], "big")) % sizes[i]
        return out

    def _stream(self, seed: bytes, size: int) -> bytes:
        return shake_128(self._key + seed).digest(size)


def _clusters(token: str) -> list[tuple[str, str, str]]:
    """Base letter, its marks, and what is invisible behind it, with a leading NUL where letter and
    marks were one character. So both Unicode forms of a word are permuted alike."""
    out: list[tuple[str, str, str]] = []
    for char in token:
        if "\u0300" <= char <= "\u036f" and out and not out[-1][2]:
            base, marks, rest = out[-1]
            out[-1] = (base, marks + char, rest)
        elif out and re.match(f"[{_MARKS}{_HIDDEN}]", char):
            base, marks, rest = out[-1]
            out[-1] = (base, marks, rest + char)
        else:
            apart = unicodedata.normalize("NFD", char)
            if len(apart) > 1 and all("\u0300" <= c <= "\u036f" for c in apart[1:]):
                out.append((apart[0], apart[1:], "\0"))
            else:
                out.append((char, "", ""))
    return out


@lru_cache(maxsize=20_000)
def _alphabet(base: str, marks: str, letters: str) -> str:
    """What a character may become: letters of its script and kind that take the same marks."""
    if base in letters:
        found = letters
    elif base.isascii():
        found = "0123456789" if base.isdigit() else base
    else:
        row, kind = ord(base) & ~63, unicodedata.category(base)
        found = "".join(
            c
            for c in map(chr, range(row, row + 64))
            if unicodedata.category(c) == kind
            and (len(unicodedata.normalize("NFD", c)) == 1 or "\uac00" <= c <= "\ud7a3")
            and unicodedata.normalize("NFKC", c) == c
        )
    if marks:
        found = "".join(
            c
            for c in found
            if all(len(unicodedata.normalize("NFC", x + marks)) == 1 for x in (c, c.upper()))
        )
    return found or base
