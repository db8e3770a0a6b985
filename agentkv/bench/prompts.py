"""Real prompts out of recorded traces, for the benches that need some."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentkv.demo.traces import read_traces

TAU = "agent/tau_airline_gpt4o.sessions.jsonl.gz"
TOOLS = "agent/BFCL_v4_live_multiple.first300.json.gz"
CHAT = "chat/mt_bench_question.jsonl.gz"
RAG = "rag/rag_mtragun.jsonl.gz"
MOONCAKE = "hash/mooncake_conversation_trace.jsonl.gz"

Request = tuple[str, list[dict[str, Any]], list[dict[str, Any]]]
"""`(name, messages, tools)`."""


class TracesMissing(FileNotFoundError):
    """The folder with the recorded traces is not there."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"The recorded traces are not at {path}. They are not part of the package: pass the "
            "folder that holds agent/, chat/, rag/ and hash/ with --traces DIR."
        )


def find_traces(folder: Path | None) -> Path:
    """The folder of traces: the one given, `AGENTKV_TRACES`, or `../shared/traces`.

    Raises `TracesMissing`.
    """
    path = folder or Path(os.environ.get("AGENTKV_TRACES", "../shared/traces"))
    if not (path / TAU).is_file():
        raise TracesMissing(path)
    return path


def real_requests(traces: Path) -> Iterator[Request]:
    """Chat questions, documents with a question, and questions with tools, taken in turn."""
    yield from _in_turn(
        _first_calls(traces / CHAT), _first_calls(traces / RAG), _first_calls(traces / TOOLS)
    )


def _first_calls(path: Path) -> list[Request]:
    found = []
    for session in read_traces(path):
        call = session.calls[0]
        messages = [dict(message) for message in call.fresh]
        if call.documents:
            text = "\n\n".join(document.text for document in call.documents)
            messages.insert(0, {"role": "system", "content": f"Documents:\n\n{text}"})
        found.append((f"{path.name.split('.')[0]}:{session.id}", messages, list(call.tools)))
    return found


def _in_turn(*sources: list[Request]) -> Iterator[Request]:
    for row in zip(*sources, strict=False):
        yield from row
