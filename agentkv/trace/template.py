"""A call under a model's own chat template, with the engine's rendering and its spans.

Templates want ids of tool calls, which logs of many kinds do not have and no cache depends on:
they are numbered.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from agentkv.engine.errors import EngineError
from agentkv.engine.text import spans as division
from agentkv.engine.text.draft import Draft
from agentkv.engine.text.template import ChatTemplate
from agentkv.engine.types import IntArray, RenderedPrompt, Span
from agentkv.trace.call import Call, Part, Piece
from agentkv.trace.render import PieceSpan, Rendered, piece_ids
from agentkv.trace.tokens import Encoder, special

CONTROL = re.compile(
    r"<\|[A-Za-z0-9_]{1,40}\|>|<｜[^｜>]{1,40}｜>|</?s>|\[/?(?:INST|AVAILABLE_TOOLS|TOOL_CALLS|"
    r"TOOL_RESULTS|SYSTEM_PROMPT)\]|<(?:start|end)_of_turn>"
)
"""What stands for one control token each, where no tokenizer says."""

NAMED = {"bos_token": "<s>", "eos_token": "</s>"}


class TemplateWriter:
    """Renders calls with the template at `path`. Raises `FileNotFoundError` when there is none."""

    def __init__(self, path: Path, encoder: Encoder) -> None:
        self._encoder = encoder
        self._template = _load(path.expanduser())

    def render(self, call: Call) -> Rendered | None:
        """None when the template refuses the call."""
        try:
            messages, tools, homes = _request(call)
            draft = Draft(self._template, CONTROL, messages, tools, True, False, None)
            marked, exact = draft.rendered()
            controls = [m.span() for m in CONTROL.finditer(marked.text)]
            if exact:
                regions = division.divide(
                    marked.text,
                    marked.events,
                    draft.owners,
                    controls,
                    turn_ends=division.TURN_ENDS,
                    generation_prompt=True,
                )
            else:
                regions = draft.coarse(marked.text)
        except (EngineError, ValueError, KeyError, TypeError):
            return None
        ids: list[IntArray] = []
        found: list[Span] = []
        pieces: list[PieceSpan] = []
        at = 0
        parts = {part.name: i for i, part in enumerate(call.parts)}
        for region in regions:
            owner = region.owner
            index = draft.message_of(owner)
            number: int | None = None
            if owner.kind == "tools":
                number = parts.get("tools")
            elif index is not None and index < len(homes):
                number = homes[index]
            text = marked.text[region.start : region.end]
            start = at
            for chunk, piece in _chunks(call.parts[number] if number is not None else None, text):
                own = self._ids(chunk)
                ids.append(own)
                if piece is not None and number is not None:
                    pieces.append(PieceSpan(number, piece, at, at + len(own)))
                at += len(own)
            if at > start:
                found.append(_span(call, number, owner.name, owner.kind, start, at))
        if not ids:
            return None
        answer = [piece_ids(self._encoder, p) for p in call.answer]
        return Rendered(
            RenderedPrompt(token_ids=np.concatenate(ids), spans=tuple(found), text=marked.text),
            tuple(pieces),
            np.concatenate(answer) if answer else _NONE,
            tokens=at,
            encoder=self._encoder,
        )

    def _ids(self, text: str) -> IntArray:
        """Ids of a stretch of the prompt; its control tokens are one id each."""
        out: list[IntArray] = []
        at = 0
        for match in CONTROL.finditer(text):
            out.append(self._encoder.encode(text[at : match.start()]))
            out.append(special(match.group()))
            at = match.end()
        out.append(self._encoder.encode(text[at:]))
        return np.concatenate(out)


class EngineWriter:
    """Renders calls exactly as the engine does with the model in `folder`: its template, its
    tokenizer, its rules for special tokens. Pieces within a message are placed by their length."""

    def __init__(self, folder: Path) -> None:
        from agentkv.engine.text.render import Renderer as EngineRenderer
        from agentkv.engine.text.tokenizer import Tokenizer

        self._renderer = EngineRenderer.load(folder, Tokenizer.load(folder), replay_entries=0)
        if self._renderer.template is None:
            raise FileNotFoundError(f"there is no chat template in {folder}.")
        self._encoder = Encoder(folder)

    def render(self, call: Call) -> Rendered | None:
        """None when the template refuses the call."""
        try:
            messages, tools, homes = _request(call)
            prompt = self._renderer.render(messages, tools or None)
        except (EngineError, ValueError, KeyError, TypeError):
            return None
        places: dict[str, int] = {f"messages[{i}]": home for i, home in enumerate(homes)}
        for number, part in enumerate(call.parts):
            if part.kind == "tools":
                places["tools"] = number
        spans: list[Span] = []
        pieces: list[PieceSpan] = []
        for span in prompt.spans:
            home = places.get(span.name)
            spans.append(_span(call, home, span.name, span.kind, span.start, span.end))
            if home is not None:
                pieces += _by_length(call.parts[home], home, span.start, span.end)
        answer = [piece_ids(self._encoder, p) for p in call.answer]
        return Rendered(
            RenderedPrompt(token_ids=prompt.token_ids, spans=tuple(spans), text=prompt.text),
            tuple(pieces),
            np.concatenate(answer) if answer else _NONE,
            tokens=len(prompt.token_ids),
        )


def _by_length(part: Part, number: int, start: int, end: int) -> list[PieceSpan]:
    total = sum(max(1, p.size) for p in part.pieces)
    out: list[PieceSpan] = []
    done = 0
    for index, piece in enumerate(part.pieces):
        first = start + (end - start) * done // total
        done += max(1, piece.size)
        out.append(PieceSpan(number, index, first, start + (end - start) * done // total))
    return out


def _load(path: Path) -> ChatTemplate:
    if path.is_dir():
        found = ChatTemplate.load(path, NAMED)
        if found is None:
            raise FileNotFoundError(f"there is no chat template in {path}.")
        return found
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        value = json.loads(text).get("chat_template")
        if not isinstance(value, str):
            raise FileNotFoundError(f"{path} has no chat_template.")
        text = value
    return ChatTemplate(text, named_tokens=NAMED)


def _request(call: Call) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[int]]:
    """Messages and tools in OpenAI's shape, and the part that each message came from."""
    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    homes: list[int] = []
    calls = 0
    open_calls: list[tuple[str, str]] = []
    for number, part in enumerate(call.parts):
        if part.kind == "tools":
            tools = [_tool(p) for p in part.pieces if p.kind == "tool"]
            continue
        if part.name == "response_format":
            continue
        role = {"developer": "system", "model": "assistant", "function": "tool"}.get(
            part.role or "user", part.role or "user"
        )
        # Content blocks are joined as they are, as the engine does.
        text = "".join(p.text for p in part.pieces if p.kind in ("text", "document", "tool_result"))
        results = [p for p in part.pieces if p.kind == "tool_result"]
        if role == "user" and results:
            role = "tool"
        message: dict[str, Any] = {"role": role, "content": text}
        asked = [p for p in part.pieces if p.kind == "tool_call"]
        if role == "assistant" and asked:
            message["tool_calls"] = []
            for piece in asked:
                name = piece.name or "tool"
                open_calls.append((f"call{calls:05}", name))
                calls += 1
                message["tool_calls"].append(
                    {
                        "id": open_calls[-1][0],
                        "type": "function",
                        "function": {"name": name, "arguments": piece.text or "{}"},
                    }
                )
        thoughts = "\n".join(p.text for p in part.pieces if p.kind == "reasoning")
        if thoughts and role == "assistant":
            message["reasoning_content"] = thoughts
        if role == "tool":
            for piece in results or part.pieces:
                one, name = open_calls.pop(0) if open_calls else ("call00000", piece.name or "tool")
                messages.append(
                    {"role": "tool", "content": piece.text, "tool_call_id": one, "name": name}
                )
                homes.append(number)
            continue
        messages.append(message)
        homes.append(number)
    return messages, tools, homes


def _tool(piece: Piece) -> dict[str, Any]:
    """A definition in OpenAI's shape, whichever shape the log has."""
    value = json.loads(piece.text)
    if "function" in value:
        return {"type": "function", "function": value["function"]}
    schema = value.get("input_schema") or value.get("inputSchema") or value.get("parameters") or {}
    if isinstance(schema, dict) and isinstance(schema.get("json"), dict):
        schema = schema["json"]
    return {
        "type": "function",
        "function": {
            "name": value.get("name", piece.name or "tool"),
            "description": value.get("description", ""),
            "parameters": schema,
        },
    }


def _chunks(part: Part | None, text: str) -> list[tuple[str, int | None]]:
    """A region's text cut where the pieces of its part stand in it, as far as they are found."""
    if part is None:
        return [(text, None)]
    out: list[tuple[str, int | None]] = []
    at = 0
    for index, piece in enumerate(part.pieces):
        needle = piece.text.strip()
        where = text.find(needle, at) if needle else -1
        if where < 0 and piece.name:
            # A definition is written anew by the template: from its name to the next one's.
            where = text.find(f'"{piece.name}"', at)
            following = [
                w
                for p in part.pieces[index + 1 :]
                if p.name and (w := text.find(f'"{p.name}"', max(where, 0) + 1)) > 0
            ]
            end = min(following, default=len(text))
        else:
            end = where + len(needle)
        if where < 0:
            continue
        if where > at:
            out.append((text[at:where], None))
        out.append((text[where:end], index))
        at = end
    if at < len(text):
        out.append((text[at:], None))
    return out


def _span(call: Call, number: int | None, name: str, kind: str, start: int, end: int) -> Span:
    if number is None:
        return Span(name=name, kind=kind, start=start, end=end)
    part = call.parts[number]
    return Span(
        name=part.name,
        kind=part.kind,
        start=start,
        end=end,
        role=part.role,
        digest=part.key,
        items=tuple(p.name or "" for p in part.pieces if p.kind in ("tool", "document")),
    )


_NONE = np.empty(0, dtype=np.int32)
