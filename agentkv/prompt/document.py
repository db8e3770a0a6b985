"""A document that the application puts into a prompt as such, and not as part of a message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentkv.prompt.segment import content_hash, stability_rank


@dataclass(frozen=True, slots=True)
class Document:
    """A text with an id. `stability` says how long it stays in use, and so where it goes:

    `session` or slower: behind the instructions, ahead of the history. `turn` or `call`: behind
    the history. The `id` is what reports name and what a session remembers the place of.
    """

    id: str
    text: str
    stability: str = "session"

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("a document needs an id.")
        stability_rank(self.stability)

    @property
    def content_hash(self) -> str:
        return content_hash(self.text)

    @property
    def block(self) -> str:
        """The document as it is written into the prompt."""
        name = self.id.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        return f'<document id="{name}">\n{self.text}\n</document>'


def as_documents(values: Any) -> tuple[Document, ...]:
    """Documents from what callers have: `Document`, plain strings, mappings with `id` and `text`,
    and LangChain documents (`page_content`, `id`); one of them alone is a list of one. A text without an id is named by its hash, so
    the same text has the same name in every call. A document that is given twice is taken once;
    two texts under one id raise ValueError, and what is no document TypeError.
    """
    seen: dict[str, Document] = {}
    for value in _listed(values):
        document = _as_document(value)
        if seen.setdefault(document.id, document) != document:
            raise ValueError(f"two different documents have the id {document.id!r}.")
    return tuple(seen.values())


def _listed(values: Any) -> Iterable[Any]:
    """The values, or the only one: a text is iterable too, and its letters are no documents."""
    if values is None:
        return ()
    if isinstance(values, (str, Document, Mapping)) or hasattr(values, "page_content"):
        return (values,)
    if not isinstance(values, Iterable):
        raise TypeError(f"documents must be a list, got {type(values).__name__}.")
    return values


def _as_document(value: Any) -> Document:
    if isinstance(value, Document):
        return value
    if isinstance(value, str):
        return Document(f"doc-{content_hash(value)[:8]}", value)
    if isinstance(value, Mapping) and isinstance(value.get("text"), str):
        text = value["text"]
        name = str(value.get("id") or f"doc-{content_hash(text)[:8]}")
        return Document(name, text, str(value.get("stability") or "session"))
    text = getattr(value, "page_content", None)
    if isinstance(text, str):
        name = getattr(value, "id", None) or f"doc-{content_hash(text)[:8]}"
        return Document(str(name), text)
    raise TypeError(
        f"documents takes a Document, a string, a mapping with id and text, or one of LangChain's, "
        f"got {type(value).__name__}."
    )
