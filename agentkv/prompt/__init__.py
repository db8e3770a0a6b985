"""A prompt as segments: what each part is, how long it lasts, and its canonical bytes."""

from agentkv.prompt.canonical import canonical_json, canonical_tool, tool_name
from agentkv.prompt.document import Document, as_documents
from agentkv.prompt.marks import static, volatile
from agentkv.prompt.prompt import Message, Prompt
from agentkv.prompt.segment import KINDS, STABILITIES, Segment, content_hash
from agentkv.prompt.tools import Tool, read_tool

__all__ = [
    "KINDS",
    "STABILITIES",
    "Document",
    "Message",
    "Prompt",
    "Segment",
    "Tool",
    "as_documents",
    "canonical_json",
    "canonical_tool",
    "content_hash",
    "read_tool",
    "static",
    "tool_name",
    "volatile",
]
