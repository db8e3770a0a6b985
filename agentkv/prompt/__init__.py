"""A prompt as segments: what each part is, how long it lasts, and its canonical bytes."""

from agentkv.prompt.canonical import canonical_json, canonical_tool, tool_name
from agentkv.prompt.document import Document, as_documents
from agentkv.prompt.marks import static, volatile
from agentkv.prompt.prompt import Message, Prompt
from agentkv.prompt.segment import KINDS, STABILITIES, Segment, content_hash

__all__ = [
    "KINDS",
    "STABILITIES",
    "Document",
    "Message",
    "Prompt",
    "Segment",
    "as_documents",
    "canonical_json",
    "canonical_tool",
    "content_hash",
    "static",
    "tool_name",
    "volatile",
]
