"""`redact`: a log without its texts, of which reports say the same.

Every word is replaced by another of the same shape, made from a keyed digest of it: the same word
by the same one in the whole log, and no word can be had back without the key, which is thrown
away. Numbers, times and identifiers keep their form (digits become other digits, `10:15:02` another
time, a UUID another UUID), so that a report still calls a clock a clock. Structure, names of fields,
roles, times, models and token counts stay; names of tools are replaced.

What is kept that could tell something: lengths, punctuation, which words are equal, JSON keys of
tool schemas that are words of JSON Schema. Pictures and other data become filler of the same length.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

_WORD = re.compile(r"[^\W\d_]+|\d+")
_DATA = re.compile(r"^data:[^;,]*;base64,|^[A-Za-z0-9+/=_-]{200,}$")

KEPT_KEYS = frozenset(
    [
        "model",
        "object",
        "type",
        "role",
        "id",
        "created",
        "timestamp",
        "time",
        "start_time",
        "end_time",
        "created_at",
        "ts",
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "cached_tokens",
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "prompt_tokens_details",
        "finish_reason",
        "stop_reason",
        "index",
        "status",
        "status_code",
        "stream",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "cache_control",
        "cachePoint",
        "ttl",
        "method",
        "tool_choice",
        "parallel_tool_calls",
        "provider",
        "run_type",
        "seed",
        "n",
        "logprobs",
        "custom_id",
        "hash_ids",
        "input_length",
        "output_length",
        "block_size",
        "in",
        "out",
        "t",
    ]
)
"""Values under these keys are no text (or name a form of it) and stay."""

SCHEMA_WORDS = frozenset(
    [
        "object",
        "string",
        "integer",
        "number",
        "boolean",
        "array",
        "null",
        "function",
        "text",
        "image_url",
        "image",
        "tool_use",
        "tool_result",
        "tool",
        "thinking",
        "reasoning",
        "input_text",
        "output_text",
        "message",
        "document",
        "user",
        "assistant",
        "system",
        "developer",
        "auto",
        "required",
        "none",
        "any",
        "ephemeral",
        "json_schema",
        "json_object",
        "base64",
    ]
)
NAMES = frozenset(["session_id", "thread_id", "conversation_id", "trace_id", "user", "name", "url"])
"""Values under these keys are replaced whole, the same for the same."""


class Redactor:
    """Replaces texts. `key`: 16 bytes or more; a random one unless given. Two logs that are to be
    compared need the same."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._word: Callable[[str], str] = lru_cache(maxsize=200_000)(self._replace)

    def value(self, value: Any, key: str | None = None) -> Any:
        """A JSON value without its texts."""
        if isinstance(value, Mapping):
            return {self._field(k, key): self.value(v, str(k)) for k, v in value.items()}
        if isinstance(value, list):
            return [self.value(v, key) for v in value]
        if not isinstance(value, str) or key in KEPT_KEYS or value in SCHEMA_WORDS:
            return value
        if key in NAMES:
            return self._name(value)
        if key in ("arguments", "input") or value[:1] in "{[":
            inner = _json(value)
            if inner is not None:
                return json.dumps(self.value(inner), ensure_ascii=False, separators=_spaces(value))
        return self.text(value)

    def text(self, text: str) -> str:
        """A text of the same shape."""
        if _DATA.match(text):
            head = text[: text.find(",") + 1] if text.startswith("data:") else ""
            filler = blake2b(text.encode(), key=self._key[:64], digest_size=32).hexdigest()
            size = len(text) - len(head)
            return head + (filler * (size // len(filler) + 1))[:size]
        return _WORD.sub(lambda m: self._word(m.group()), text)

    def _field(self, name: Any, parent: str | None) -> Any:
        # Names of a tool's arguments may be words of the house; the ones of JSON Schema are not.
        return self._name(str(name)) if parent == "properties" else name

    def _name(self, value: str) -> str:
        return _WORD.sub(lambda m: self._word(m.group()), value)

    def _replace(self, word: str) -> str:
        digest = blake2b(word.lower().encode(), key=self._key[:64], digest_size=64).digest()
        if word.isdigit():
            return self._digits(word, digest)
        out = []
        for index, letter in enumerate(word):
            seed = digest[index % 64] + index // 64
            if "a" <= letter.lower() <= "z":
                new = chr(ord("a") + seed % 26)
            elif "\u0400" <= letter <= "\u04ff":
                new = chr(0x430 + seed % 32)
            elif ord(letter) >= 0x3040:
                new = chr(0x4E00 + (digest[index % 64] * 256 + seed) % 4096)
            else:
                new = chr(ord("a") + seed % 26)
            out.append(new.upper() if letter.isupper() else new)
        made = "".join(out)
        return made if made.lower() != word.lower() else made[::-1] + "x" * (len(word) == 1)

    def _digits(self, word: str, digest: bytes) -> str:
        """Short numbers keep their range, so that hours stay hours and months stay months."""
        if len(word) <= 2:
            return word
        if len(word) == 4 and word[:2] in ("19", "20"):
            return word  # a year
        return word[0] + "".join(str(digest[i % 64] % 10) for i in range(1, len(word)))


def redact_lines(lines: Iterable[str], redactor: Redactor) -> Iterator[str]:
    """Redacted lines of a JSON-lines log. A line that is no JSON becomes an empty object, since
    nobody can say what it holds."""
    for line in lines:
        if not line.strip():
            continue
        found = _json(line)
        yield json.dumps(redactor.value(found) if found is not None else {}, ensure_ascii=False)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _spaces(text: str) -> tuple[str, str]:
    """The separators that a JSON text was written with."""
    return (", " if ", " in text else ",", ": " if ": " in text else ":")
