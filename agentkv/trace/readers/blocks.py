"""Content of a message, as any provider or framework writes it, into pieces.

One function for all of them: the shapes do not collide, and real logs mix them (a gateway that
speaks one protocol logs the blocks of another).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from agentkv.trace.call import Piece
from agentkv.trace.readers.fields import Record, dumps, items, mapping, pick, text

_TTL = re.compile(r"(\d+)\s*([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def pieces_of(content: Any) -> tuple[Piece, ...]:
    """The pieces of `content`: a string, a block, or a list of either. Empty text gives none."""
    found: list[Piece] = []
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, str):
            found += [Piece("text", block)] if block else []
        elif isinstance(block, dict):
            point = block.get("cachePoint")
            if isinstance(point, dict):  # a block of its own, which ends the one before it
                mark_last(found, ttl_of(point.get("ttl")))
                continue
            fresh = list(_block(block))
            marker = marker_of(block)
            if marker is not None:
                mark_last(fresh, marker)
            found += fresh
        elif block is not None:
            found.append(Piece("text", dumps(block)))
    return tuple(found)


def mark_last(pieces: list[Piece], marker: int) -> None:
    """Let a cache breakpoint end at the last of the pieces."""
    if pieces:
        pieces[-1] = replace(pieces[-1], marker=marker)


def marker_of(block: Record) -> int | None:
    """Seconds to live of the breakpoint that a block carries; 0: the default; None: no breakpoint."""
    control = block.get("cache_control") or block.get("prompt_cache_breakpoint")
    if control is None:
        control = mapping(block.get("additional_kwargs")).get("cache_control")
    return ttl_of(mapping(control).get("ttl")) if control else None


def ttl_of(value: Any) -> int:
    """`"5m"`, `"1h"`, `300` as seconds; 0 where it is left to the provider."""
    if isinstance(value, int) and not isinstance(value, bool):
        return max(0, value)
    match = _TTL.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(match[1]) * _UNITS[match[2]] if match else 0


def data_text(data: str, mime: str | None = None) -> str:
    """What stands for inline data: its type and the digest of its decoded bytes.

    A screenshot of a megabyte is no text, and must neither be split into words nor kept.
    """
    if data.startswith("data:"):
        head, _, data = data.partition(",")
        mime = head[5:].split(";")[0] or mime
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raw = data.encode("utf-8", "surrogatepass")
    return f"data:{mime or 'unknown'};blake2:{blake2b(raw, digest_size=8).hexdigest()}"


def _block(block: Record) -> Iterator[Piece]:
    kind = block.get("type")
    reader = _TYPED.get(kind) if isinstance(kind, str) else None
    if reader is not None:
        yield from reader(block)
        return
    for key, untyped in _UNTYPED.items():
        if key in block:
            yield from untyped(block)
            return
    yield Piece("text", dumps({k: v for k, v in block.items() if k != "cache_control"}))


def _text(block: Record) -> Iterator[Piece]:
    value = pick(block, "text", "content", "refusal", "input_text", "value")
    value = mapping(value).get("text", value)
    if isinstance(value, str):
        if value:
            yield Piece("reasoning" if block.get("thought") is True else "text", value)
    elif value is not None:
        yield Piece("text", dumps(value))


def _reasoning(block: Record) -> Iterator[Piece]:
    value = pick(
        block, "thinking", "reasoning", "content", "summary", "text", "data", "encrypted_content"
    )
    if value == [] or value == "":  # an empty summary beside the sealed thought
        value = pick(block, "encrypted_content", "data")
    for part in value if isinstance(value, list) else [value]:
        thought = part if isinstance(part, str) else text(mapping(part).get("text"))
        if thought:
            yield Piece("reasoning", thought)


def _reasoning_content(block: Record) -> Iterator[Piece]:
    inner = mapping(block["reasoningContent"])
    thought = text(mapping(inner.get("reasoningText")).get("text")) or text(
        inner.get("redactedContent")
    )
    if thought:
        yield Piece("reasoning", thought)


def _image(block: Record) -> Iterator[Piece]:
    source = mapping(block.get("source"))
    spec = pick(block, "image_url", "url", "base64", "data", "file_id", "image", "content", "uri")
    detail = text(block.get("detail"))
    if isinstance(spec, dict):
        detail = detail or text(spec.get("detail"))
        source = source or mapping(spec.get("source")) or spec
        spec = spec.get("url")
    mime = text(pick(source, "media_type", "mimeType", "mime_type")) or text(
        pick(block, "mime_type", "mimeType", "media_type", "format")
    )
    value = spec or pick(source, "data", "bytes", "url", "file_id", "fileUri", "file_uri")
    if value is None:
        value = dumps(dict(block))
    inline = isinstance(value, str) and (value.startswith("data:") or not _is_reference(value))
    shown = data_text(value, mime) if inline else value if isinstance(value, str) else dumps(value)
    yield Piece("image", shown, detail)


def _is_reference(value: str) -> bool:
    """A URL or the id of a file, and no data."""
    return "://" in value[:32] or (len(value) < 128 and not value.endswith("="))


def _audio(block: Record) -> Iterator[Piece]:
    spec = mapping(pick(block, "input_audio", "audio")) or block
    value = pick(spec, "data", "base64", "url", "file_id", "id", "transcript")
    mime = text(pick(spec, "format", "mime_type", "mimeType"))
    if isinstance(value, str):
        yield Piece("audio", value if _is_reference(value) else data_text(value, mime))


def _file(block: Record) -> Iterator[Piece]:
    spec = mapping(pick(block, "file", "fileData", "file_data", "video")) or block
    name = text(pick(spec, "filename", "file_name", "name", "displayName"))
    value = pick(
        spec, "file_data", "data", "base64", "file_id", "file_url", "url", "fileUri", "uri"
    )
    if value is None:
        value = pick(mapping(spec.get("source")), "bytes", "data", "uri") or dumps(dict(spec))
    shown = value if isinstance(value, str) else dumps(value)
    mime = text(pick(spec, "mime_type", "mimeType"))
    yield Piece("file", shown if _is_reference(shown) else data_text(shown, mime), name)


def _inline_data(block: Record) -> Iterator[Piece]:
    """Gemini's bytes: an image, sound or a file by their type."""
    spec = mapping(pick(block, "inlineData", "inline_data", "fileData", "file_data"))
    mime = text(pick(spec, "mimeType", "mime_type")) or "unknown"
    value = text(pick(spec, "data", "fileUri", "file_uri")) or ""
    kind = mime.split("/")[0]
    shown = data_text(value, mime) if "data" in spec else value
    if kind in ("image", "audio"):
        yield Piece("image" if kind == "image" else "audio", shown)
    else:
        yield Piece("file", shown)


def _blob(block: Record) -> Iterator[Piece]:
    """OpenTelemetry's blob, uri and file parts."""
    modality = block.get("modality")
    value = text(pick(block, "content", "data", "uri", "file_id")) or ""
    mime = text(block.get("mime_type"))
    shown = data_text(value, mime) if block.get("type") == "blob" else value
    if modality in ("image", "audio"):
        yield Piece("image" if modality == "image" else "audio", shown)
    else:
        yield Piece("file", shown)


def _document(block: Record) -> Iterator[Piece]:
    """A document that a block holds, of Anthropic (source), Bedrock, Cohere and search results."""
    spec = mapping(block.get("document")) or block
    source = spec.get("source")
    name = text(pick(spec, "title", "name", "id")) or text(mapping(spec.get("data")).get("title"))
    head = text(spec.get("context"))
    body: Any = mapping(source) if isinstance(source, dict) else spec
    value = pick(body, "data", "content", "text", "snippet", "bytes", "url", "uri", "file_id")
    if isinstance(value, dict):
        value = pick(value, "text", "snippet", "content") or dumps(value)
    if isinstance(value, list):
        value = "\n".join(p.text for p in pieces_of(value))
    shown = value if isinstance(value, str) else dumps(dict(spec))
    if body.get("type") == "base64" or "bytes" in body:
        shown = data_text(shown, text(body.get("media_type")) or text(spec.get("format")))
    yield Piece("document", f"{head}\n{shown}" if head else shown, name)


def _tool_call(block: Record) -> Iterator[Piece]:
    spec = pick(block, "function", "toolUse", "functionCall", "function_call")
    spec = mapping(spec) or block
    arguments = pick(spec, "arguments", "input", "args", "partial_json")
    shown = (
        arguments if isinstance(arguments, str) else dumps({} if arguments is None else arguments)
    )
    yield Piece("tool_call", shown, text(spec.get("name")))


def _tool_result(block: Record) -> Iterator[Piece]:
    spec = mapping(pick(block, "toolResult", "functionResponse", "function_response")) or block
    content = pick(spec, "content", "output", "response", "result")
    name = text(spec.get("name"))
    if isinstance(content, dict) and "type" not in content:
        yield Piece("tool_result", dumps(content), name)
        return
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict) and "json" in part:
            yield Piece("tool_result", dumps(part["json"]), name)
            continue
        for piece in pieces_of(part):
            yield Piece("tool_result", piece.text, name) if piece.kind == "text" else piece


def _opaque(block: Record) -> Iterator[Piece]:
    """A call or a result that only its provider understands (code, searches): as JSON."""
    kind = str(block.get("type", ""))
    what = {k: v for k, v in block.items() if k not in _IDS}
    yield Piece("tool_result" if "result" in kind or "output" in kind else "tool_call", dumps(what))


_IDS = frozenset({"id", "call_id", "tool_use_id", "cache_control", "status"})

_TYPED = {
    **dict.fromkeys(("text", "input_text", "output_text", "refusal", "text-plain"), _text),
    **dict.fromkeys(
        ("thinking", "redacted_thinking", "reasoning", "reasoning.text", "reasoning.summary"),
        _reasoning,
    ),
    "reasoning.encrypted": _reasoning,
    **dict.fromkeys(("image", "image_url", "input_image"), _image),
    **dict.fromkeys(("input_audio", "audio"), _audio),
    **dict.fromkeys(("file", "input_file", "video", "video_url", "container_upload"), _file),
    **dict.fromkeys(("document", "search_result", "document_url"), _document),
    **dict.fromkeys(
        ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "function_call", "function"),
        _tool_call,
    ),
    **dict.fromkeys(
        ("tool_result", "tool_call_response", "function_call_output", "mcp_tool_result"),
        _tool_result,
    ),
    **dict.fromkeys(
        (
            "web_search_tool_result",
            "web_fetch_tool_result",
            "code_execution_tool_result",
            "web_search_call",
            "file_search_call",
            "code_interpreter_call",
            "computer_call",
            "computer_call_output",
            "local_shell_call",
            "local_shell_call_output",
            "mcp_call",
            "mcp_list_tools",
            "image_generation_call",
            "custom_tool_call_output",
        ),
        _opaque,
    ),
    "custom_tool_call": _tool_call,
    **dict.fromkeys(("blob", "uri"), _blob),
}

_UNTYPED = {
    "text": _text,
    "functionCall": _tool_call,
    "function_call": _tool_call,
    "toolUse": _tool_call,
    "functionResponse": _tool_result,
    "function_response": _tool_result,
    "toolResult": _tool_result,
    "inlineData": _inline_data,
    "inline_data": _inline_data,
    "fileData": _inline_data,
    "file_data": _inline_data,
    "reasoningContent": _reasoning_content,
    "image": _image,
    "document": _document,
    "video": _file,
    "thinking": _reasoning,
}


def tools_of(tools: Any) -> tuple[Piece, ...]:
    """The definitions of tools, one piece each, in the order and with the keys of the log.

    Lists inside lists (Gemini's `functionDeclarations`) are opened; a breakpoint on a tool becomes
    the piece's marker and leaves its text.
    """
    found: list[Piece] = []
    for tool in items(tools):
        if not isinstance(tool, dict):
            if isinstance(tool, str):  # a name only
                found.append(Piece("tool", tool, tool))
            continue
        point = tool.get("cachePoint")
        if isinstance(point, dict):
            mark_last(found, ttl_of(point.get("ttl")))
            continue
        declared = pick(tool, "functionDeclarations", "function_declarations")
        if isinstance(declared, list):
            found += tools_of(declared)
            rest = {k: v for k, v in tool.items() if v is not declared}
            if rest:
                found.append(Piece("tool", dumps(rest), next(iter(rest))))
            continue
        spec = mapping(pick(tool, "function", "toolSpec", "custom"))
        name = text(spec.get("name")) or text(tool.get("name")) or text(tool.get("type"))
        shown = {k: v for k, v in tool.items() if k != "cache_control"}
        found.append(Piece("tool", dumps(shown), name or next(iter(tool), None), marker_of(tool)))
    return tuple(found)
