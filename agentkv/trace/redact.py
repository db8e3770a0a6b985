"""`redact`: a log without its texts, of which reports say the same.

What is written is made from `Call`s and not from the log's own lines: only fields that are known are
in it, so nothing that was not thought of can slip through. It is read by every `trace` command.

Kept: which call, when, with which model and provider (without the suffix of a fine-tuned one), all
token counts, roles, the structure of parts and pieces, cache breakpoints, names of settings. Texts,
names of tools and documents are veiled (see `veil`); sessions, users, ids, salts, pictures, values
of settings become keyed digests; errors become one word. The key is thrown away.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentkv.prompt.segment import KINDS as SEGMENTS
from agentkv.trace.call import Call, Part, Piece
from agentkv.trace.veil import Veil

VERSION = 1
SHORTEST_KEY = 16
HELD = 32_000_000
"""Characters of veiled pieces that are kept for the calls that repeat them."""
ROLES = frozenset(["system", "developer", "user", "assistant", "model", "tool", "function"])
KINDS = frozenset((*SEGMENTS, "schema"))
_NAME = re.compile(
    r"(?:tools|system|documents|instructions|schema|response_format|generation_prompt|prompt|"
    r"messages|context|contents|input)(?:\[[0-9]+\])*"
)
_MEDIA = ("image", "audio", "file")


class Redactor:
    """Redacts calls. `key`: 16 bytes or more; a random one unless given. Logs that are to be
    compared with each other need the same. Raises ValueError for a shorter key."""

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and len(key) < SHORTEST_KEY:
            raise ValueError(f"a key of {len(key)} bytes can be guessed: {SHORTEST_KEY} or more.")
        self._veil = Veil(key or secrets.token_bytes(32))
        self._pieces: OrderedDict[tuple[str, str], list[Any]] = OrderedDict()
        self._held = 0

    def call(self, call: Call) -> dict[str, Any]:
        """A call as one JSON value of the redacted log."""
        usage = call.usage
        line: dict[str, Any] = {
            "agentkv_redacted": VERSION,
            "model": self._model(call.model),
            "provider": call.provider if re.fullmatch(r"[a-z_.]{1,24}", call.provider) else "other",
            "id": self._digest(call.id),
            "time": call.time,
            "session": self._digest(call.session),
            "user": self._digest(call.user),
            "salt": self._digest(call.salt),
            "usage": [usage.prompt, usage.cached, usage.written, usage.completion],
            "settings": {k: self._digest(v) for k, v in call.settings.items()},
            "error": "failed" if call.error is not None else None,
            "ttft_ms": call.ttft_ms,
            "parts": [self._part(p) for p in call.parts],
            "answer": self._all(call.answer),
        }
        if call.blocks is not None:
            line["blocks"] = [int(b) for b in call.blocks]
            line["block_size"] = call.block_size
        if call.length:
            line["length"] = call.length
        if call.spans:
            line["spans"] = [[self._name(n), start, end] for n, start, end in call.spans]
        return {k: v for k, v in line.items() if v not in (None, [], {})}

    def _part(self, part: Part) -> list[Any]:
        role = part.role if part.role is None or part.role in ROLES else self._veil.text(part.role)
        kind = part.kind if part.kind in KINDS else self._veil.text(part.kind)
        return [self._name(part.name), kind, role, self._all(part.pieces)]

    def _all(self, pieces: Sequence[Piece]) -> list[Any]:
        return [self._piece(p) for p in pieces]

    def _piece(self, piece: Piece) -> list[Any]:
        """`[kind, text, name, marker]`; of a piece without text `[kind, null, name, marker, key,
        characters]`."""
        key = (piece.key, str(piece.marker))
        found = self._pieces.get(key)
        if found is not None:
            self._pieces.move_to_end(key)
            return found
        name = self._veil.text(piece.name) if piece.name is not None else None
        if piece.redacted:
            new = [piece.kind, None, name, piece.marker, self._veil.digest(piece.key), piece.size]
        else:
            new = [piece.kind, self._text(piece), name, piece.marker]
        if piece.size < HELD // 8:
            self._pieces[key] = new
            self._held += piece.size
            while self._held > HELD:
                _, old = self._pieces.popitem(last=False)
                self._held -= old[5] if old[1] is None else len(old[1])
        return new

    def _text(self, piece: Piece) -> str:
        if piece.kind in _MEDIA and not piece.text.startswith(("http://", "https://")):
            mime = re.match(r"data:([a-z]+/[a-z0-9.+-]+)", piece.text)
            return f"data:{mime[1] if mime else 'x/x'};blake2:{self._veil.digest(piece.text)}"
        return self._veil.text(piece.text)

    def _name(self, name: str) -> str:
        return name if _NAME.fullmatch(name) else self._veil.text(name)

    def _model(self, model: str) -> str:
        """A fine-tuned model's name holds those of its owners: `ft:gpt-4o:acme::x`."""
        base = model.split(":")
        kept = 2 if base[0] == "ft" else 1
        return ":".join([*base[:kept], *(self._veil.text(x) for x in base[kept:])])

    def _digest(self, text: str | None) -> str | None:
        return None if text is None else self._veil.digest(text)


def redacted(calls: Iterable[Call], redactor: Redactor) -> Iterator[str]:
    """The lines of the redacted log, without line ends."""
    for call in calls:
        yield json.dumps(redactor.call(call), ensure_ascii=False, separators=(",", ":"))
