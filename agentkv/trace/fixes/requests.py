"""Mendings of requests: tools, history, thoughts, pictures, the model."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import replace
from typing import Any

from agentkv.trace.call import Call, Part, Piece
from agentkv.trace.fixes.base import is_talk, with_parts, with_pieces

SESSIONS = 4096


class Tools:
    """One list of tools for a site: all that it ever had, by name, each in its first form. Which of
    them a call may use is said beside the prompt (`allowed_tools`)."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, dict[str, Piece]] = OrderedDict()

    def learn(self, call: Call, session: str, group: str) -> None:
        known = self._known.setdefault(group, {})
        while len(self._known) > SESSIONS:
            self._known.popitem(last=False)
        for part in call.parts:
            if part.kind == "tools":
                for piece in part.pieces:
                    known.setdefault(piece.name or piece.key, _canonical(piece))

    def mend(self, call: Call, session: str, group: str) -> Call:
        known = self._known.get(group, {})
        pieces = [known[name] for name in sorted(known)]
        return with_parts(
            call, [with_pieces(p, pieces) if p.kind == "tools" else p for p in call.parts]
        )


def _canonical(piece: Piece) -> Piece:
    try:
        value: Any = json.loads(piece.text)
    except ValueError:
        return piece
    return Piece(piece.kind, json.dumps(value, sort_keys=True), piece.name, piece.marker)


class History:
    """Append only: what a conversation sent once stays as it was, and thoughts stay in answers."""

    def __init__(self) -> None:
        self._talk: OrderedDict[str, list[Part]] = OrderedDict()
        self._answers: dict[str, tuple[Piece, ...]] = {}

    def learn(self, call: Call, session: str, group: str) -> None:
        pass

    def mend(self, call: Call, session: str, group: str) -> Call:
        said = self._talk.get(session, [])
        now = [p for p in call.parts if is_talk(p)]
        front = [p for p in call.parts if not is_talk(p)]
        answer = self._answers.get(session)
        known = {_words(p) for p in said}
        if answer is not None:
            known.add(_answer_words(answer))
        last = max((i for i, p in enumerate(now) if _words(p) in known), default=-1)
        if said and last < 0 and len(now) > 1:
            kept = now  # another conversation under the same name
        elif said:
            kept = list(said)
            if answer is not None and not any(_words(p) == _answer_words(answer) for p in said):
                mine = next((p for p in now if _words(p) == _answer_words(answer)), None)
                if mine is not None:
                    kept.append(Part(mine.name, mine.kind, mine.role, answer))
            at = {_words(p) for p in kept}
            kept += [p for p in now[last + 1 :] if _words(p) not in at or p is now[-1]]
        else:
            kept = now
        self._talk[session] = kept
        self._talk.move_to_end(session)
        self._answers[session] = call.answer
        if not call.answer:
            del self._answers[session]
        while len(self._talk) > SESSIONS:
            gone, _ = self._talk.popitem(last=False)
            self._answers.pop(gone, None)
        return with_parts(call, [*front, *kept])


def _words(part: Part) -> str:
    role = "assistant" if part.role == "model" else part.role or ""
    return role + "\0".join(p.key for p in part.pieces if p.kind != "reasoning")


def _answer_words(pieces: tuple[Piece, ...]) -> str:
    return "assistant" + "\0".join(p.key for p in pieces if p.kind != "reasoning")


class Image:
    """A picture at one place of a conversation keeps the bytes that it was first sent with."""

    def __init__(self) -> None:
        self._first: OrderedDict[tuple[str, int], Piece] = OrderedDict()

    def learn(self, call: Call, session: str, group: str) -> None:
        pass

    def mend(self, call: Call, session: str, group: str) -> Call:
        count = 0
        parts: list[Part] = []
        for part in call.parts:
            pieces: list[Piece] = []
            for piece in part.pieces:
                if piece.kind == "image":
                    piece = self._first.setdefault((session, count), piece)
                    count += 1
                pieces.append(piece)
            parts.append(with_pieces(part, pieces))
        while len(self._first) > 16 * SESSIONS:
            self._first.popitem(last=False)
        return with_parts(call, parts)


class Model:
    """A site stays with the model, and the cache key, that it began with."""

    def __init__(self) -> None:
        self._first: OrderedDict[str, tuple[str, str | None]] = OrderedDict()

    def learn(self, call: Call, session: str, group: str) -> None:
        pass

    def mend(self, call: Call, session: str, group: str) -> Call:
        model, salt = self._first.setdefault(group, (call.model, call.salt))
        self._first.move_to_end(group)
        while len(self._first) > SESSIONS:
            self._first.popitem(last=False)
        return replace(call, model=model, salt=salt)
