"""Recorded streams (server-sent events, JSON lines, lists of chunks) folded into one reply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from agentkv.trace.readers.fields import Record, items, mapping, text

_BREAK = re.compile(r"\r\n|\n|\r")


def events_of(raw: str) -> Iterator[Any]:
    """The JSON values of a stream's text, in order; comments, `[DONE]` and a cut-off end are not
    among them."""
    held: list[str] = []
    # Not splitlines(): U+2028 and its like are text inside an event.
    for line in [*_BREAK.split(raw), ""]:
        if line.startswith("data:"):
            held.append(line[5:].strip())
            continue
        if held and not line.strip():
            yield from _parsed("\n".join(held))
            held = []
        elif line[:1] in ("{", "["):  # JSON lines, of Ollama and others
            yield from _parsed(line)


def _parsed(data: str) -> Iterator[Any]:
    if data and data != "[DONE]":
        try:
            yield json.loads(data)
        except (ValueError, RecursionError):
            return


def folded(chunks: Iterable[Any]) -> dict[str, Any]:
    """One reply made of the chunks of a stream, in the shape of an unstreamed one.

    The shapes: chat completions (deltas), responses (`response.completed`), Anthropic
    (`message_start`...), Bedrock (`contentBlockDelta`...), Gemini and Ollama (whole objects). An
    error event becomes `error`.
    """
    fold = _Fold()
    for chunk in chunks:
        if isinstance(chunk, dict):
            fold.take(chunk)
        elif isinstance(chunk, list):  # Gemini streams an array
            for inner in chunk:
                if isinstance(inner, dict):
                    fold.take(inner)
    return fold.reply()


class _Fold:
    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.usage: dict[str, Any] = {}
        self.blocks: dict[Any, dict[str, Any]] = {}
        self.done: dict[str, Any] = {}

    def take(self, chunk: Record) -> None:
        if chunk.get("error"):
            self.facts["error"] = chunk["error"]
        kind = chunk.get("type")
        if isinstance(chunk.get("response"), dict) and str(kind).startswith("response."):
            self.done = dict(chunk["response"])  # the last one is the complete one
        elif "choices" in chunk:
            self._chat(chunk)
        elif isinstance(kind, str) and kind.startswith(("message", "content", "citation", "tool-")):
            self._typed(kind, chunk)
        elif "candidates" in chunk or "usageMetadata" in chunk:
            self._gemini(chunk)
        elif isinstance(chunk.get("message"), dict):  # Ollama
            self._facts(chunk)
            self._text(0, text(chunk["message"].get("content")) or "")
            for call in items(chunk["message"].get("tool_calls")):
                self.blocks[("call", len(self.blocks))] = {"type": "tool_call", **mapping(call)}
        else:
            self._bedrock(chunk)

    def _facts(self, chunk: Record) -> None:
        for key in (
            "id",
            "model",
            "created",
            "created_at",
            "provider",
            "modelVersion",
            "responseId",
        ):
            if chunk.get(key) is not None and key not in self.facts:
                self.facts[key] = chunk[key]
        for key in ("prompt_eval_count", "eval_count", "timings", "agentkv"):
            if chunk.get(key) is not None:
                self.facts[key] = chunk[key]
        for usage in (chunk.get("usage"), mapping(chunk.get("x_groq")).get("usage")):
            if isinstance(usage, dict):
                self.usage.update(usage)

    def _chat(self, chunk: Record) -> None:
        self._facts(chunk)
        if failed := mapping(chunk.get("x_groq")).get("error"):
            self.facts["error"] = failed
        for choice in items(chunk["choices"]):
            if mapping(choice).get("index", 0) != 0:
                continue  # of several answers the first is the one that goes on
            delta = mapping(mapping(choice).get("delta") or mapping(choice).get("message"))
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            if isinstance(thought, str):
                self._text("thought", thought, "reasoning")
            content = delta.get("content")
            if isinstance(content, str):
                self._text("text", content)
            for block in items(content):  # Mistral: thoughts as blocks
                for inner in items(mapping(block).get("thinking")):
                    self._text("thought", text(mapping(inner).get("text")) or "", "reasoning")
                self._text("text", text(mapping(block).get("text")) or "")
            for call in items(delta.get("tool_calls")):
                self._call(("call", mapping(call).get("index", 0)), mapping(call).get("function"))
            if delta.get("function_call"):
                self._call(("call", 0), delta["function_call"])
            if isinstance(mapping(choice).get("text"), str):  # text completions
                self._text("text", choice["text"])

    def _typed(self, kind: str, chunk: Record) -> None:
        """Anthropic's events, and Cohere's, whose names have dashes."""
        delta = mapping(chunk.get("delta"))
        index = chunk.get("index", 0)
        if kind in ("message_start", "message-start"):
            self._facts(mapping(chunk.get("message")) or chunk)
        elif kind == "content_block_start":
            block = dict(mapping(chunk.get("content_block")))
            if "input" in block:
                block["input"] = ""  # comes in pieces of JSON
            self.blocks[index] = block
        elif kind == "content_block_delta":
            block = self.blocks.setdefault(index, {"type": "text"})
            for key, slot in (
                ("text", "text"),
                ("thinking", "thinking"),
                ("partial_json", "input"),
            ):
                if isinstance(delta.get(key), str):
                    block[slot] = (text(block.get(slot)) or "") + delta[key]
        elif kind in ("message_delta", "message-end"):
            found = chunk.get("usage") or delta.get("usage")
            self.usage.update({k: v for k, v in mapping(found).items() if v is not None})
        elif kind == "content-delta":
            content = mapping(mapping(delta.get("message")).get("content"))
            self._text(index, text(content.get("text")) or "")
        elif kind.startswith("tool-call"):
            call = mapping(mapping(delta.get("message")).get("tool_calls"))
            self._call(("call", index), call.get("function"))

    def _gemini(self, chunk: Record) -> None:
        self._facts(chunk)
        self.usage.update(mapping(chunk.get("usageMetadata")))
        first = mapping(next(iter(items(chunk.get("candidates"))), None))
        for part in items(mapping(first.get("content")).get("parts")):
            part = mapping(part)
            if isinstance(part.get("text"), str):
                thought = part.get("thought") is True
                self._text(
                    "thought" if thought else "text",
                    part["text"],
                    "reasoning" if thought else "text",
                )
            else:
                self.blocks[("part", len(self.blocks))] = dict(part)

    def _bedrock(self, chunk: Record) -> None:
        self.usage.update(mapping(mapping(chunk.get("metadata")).get("usage")))
        self.usage.update(mapping(chunk.get("amazon-bedrock-invocationMetrics")))
        start = mapping(chunk.get("contentBlockStart"))
        if tool := mapping(mapping(start.get("start")).get("toolUse")):
            self._call(start.get("contentBlockIndex", 0), {**tool, "arguments": ""})
        piece = mapping(chunk.get("contentBlockDelta"))
        index, delta = piece.get("contentBlockIndex", 0), mapping(piece.get("delta"))
        if isinstance(delta.get("text"), str):
            self._text(index, delta["text"])
        if tool := mapping(delta.get("toolUse")):
            self._call(index, {"arguments": tool.get("input")})
        if thought := text(mapping(delta.get("reasoningContent")).get("text")):
            self._text(index, thought, "reasoning")

    def _text(self, index: Any, more: str, kind: str = "text") -> None:
        if more:
            block = self.blocks.setdefault(index, {"type": kind, kind: ""})
            block[kind] = (text(block.get(kind)) or "") + more

    def _call(self, index: Any, function: Any) -> None:
        function = mapping(function)
        block = self.blocks.setdefault(index, {"type": "tool_call", "arguments": ""})
        if name := text(function.get("name")):
            block["name"] = name
        block["arguments"] += text(function.get("arguments")) or ""

    def reply(self) -> dict[str, Any]:
        if self.done:
            return self.done
        found = dict(self.facts)
        if self.usage:
            found["usage"] = self.usage
        # Thoughts come before what was said, also when a chunk of text came first.
        blocks = sorted(self.blocks.values(), key=lambda b: b.get("type") != "reasoning")
        return {**found, "content": blocks, "type": "message"}
