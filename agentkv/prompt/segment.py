"""One unit of a prompt, and the two scales that say where it belongs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Kind = Literal[
    "tools",
    "instructions",
    "examples",
    "documents",
    "memory",
    "history",
    "context",
    "question",
    "template",
]
Stability = Literal["build", "deploy", "tenant", "user", "session", "turn", "call"]

KINDS: tuple[str, ...] = get_args(Kind)
STABILITIES: tuple[str, ...] = get_args(Stability)
"""From slow to fast: `build` is a literal in the source, `call` a clock or a uuid."""

_RANK = {name: i for i, name in enumerate(STABILITIES)}
_KIND_RANK = {name: i for i, name in enumerate(KINDS)}
# What an undeclared text of a kind is taken for, when it is compared with declared ones.
_USUAL: dict[str, str] = {
    "tools": "deploy",
    "instructions": "build",
    "examples": "build",
    "documents": "session",
    "memory": "user",
    "history": "turn",
    "context": "call",
    "question": "turn",
    "template": "build",
}


def stability_rank(stability: str) -> int:
    """Place of a level on the scale, 0 for the slowest. Raises ValueError for an unknown one."""
    try:
        return _RANK[stability]
    except KeyError:
        raise ValueError(
            f"stability must be one of {', '.join(STABILITIES)}, got {stability!r}."
        ) from None


def kind_rank(kind: str) -> int:
    """Place of a kind in the order of a prompt. Raises ValueError for an unknown one."""
    try:
        return _KIND_RANK[kind]
    except KeyError:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.") from None


def content_hash(text: str) -> str:
    """16 hex digits that stand for `text`: the same for the same text in any place or process."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A unit of a prompt that moves as a whole or not at all.

    `name` is unique within a prompt. `declared` says that the author marked it (a `static()` or
    `volatile()` mark, a tool list, `documents=`): only declared units may move. `message` is the
    index of the message it came from, -1 for tools and documents. `items` names the ordered parts
    inside (tool names, document ids). `part` is a content part that is not text (an image), kept
    as it was given.
    """

    name: str
    kind: str
    role: str
    content: str
    stability: str = ""
    declared: bool = False
    message: int = -1
    items: tuple[str, ...] = ()
    points: bool = True
    """False where the author promises that the text refers to nothing around it."""
    part: Mapping[str, Any] | None = field(default=None, compare=False)
    content_hash: str = ""
    joints: tuple[int, ...] = field(default=(), compare=False)
    """Where the parts meet that this text was given in, as offsets into it."""

    def __post_init__(self) -> None:
        kind_rank(self.kind)
        if not self.stability:
            object.__setattr__(self, "stability", _USUAL[self.kind])
        stability_rank(self.stability)
        if not self.content_hash:
            object.__setattr__(self, "content_hash", content_hash(self.content))

    @property
    def rank(self) -> tuple[int, int]:
        """Order by rising change odds: slow before fast, then by kind."""
        return stability_rank(self.stability), kind_rank(self.kind)
