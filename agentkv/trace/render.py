"""`Renderer`: a call of a log as the token ids that an engine would see, and which piece is where.

Without a chat template the parts follow each other as in the log, each behind a header of its role;
that is near enough for every template that writes messages in their order. With one (`template=`)
it is the engine's own rendering, so that templates which write the tools elsewhere show it.

A hash trace has no text: its ids are its blocks, and one of them stands for `per_id` tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agentkv.engine.types import IntArray, RenderedPrompt, Span
from agentkv.trace.call import Call, Part, Piece
from agentkv.trace.tokens import Encoder, opaque, special

if TYPE_CHECKING:
    from agentkv.trace.template import EngineWriter, TemplateWriter

IMAGE_TOKENS = 256
"""Of an image, where nothing else is known: providers count 85 to 1,600."""

OPAQUE = ("image", "audio", "file")
STABLE = {"tools": "deploy", "instructions": "deploy", "examples": "deploy", "question": "turn"}


@dataclass(frozen=True, slots=True)
class PieceSpan:
    """Tokens `[start, end)` of the prompt are `call.parts[part].pieces[piece]`."""

    part: int
    piece: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """`answer_ids`: the reply as the next prompt would hold it; empty when it was not logged.
    `per_id`: tokens that one id stands for. `tokens`: of the prompt. `encoder`: what made the ids
    of the pieces, where they can be told from each other; None where they cannot."""

    prompt: RenderedPrompt
    pieces: tuple[PieceSpan, ...]
    answer_ids: IntArray
    per_id: int = 1
    tokens: int = 0
    encoder: Encoder | None = None

    @property
    def full(self) -> IntArray:
        """Prompt and answer: int32."""
        if not len(self.answer_ids):
            return self.prompt.token_ids
        return np.concatenate([self.prompt.token_ids, self.answer_ids])


class Renderer:
    """`tokenizer`: a `tokenizer.json` or its folder; None for the estimate. `template`: a chat
    template file (Jinja), a `tokenizer_config.json`, or a model's folder. With the same folder for
    both, ids are exactly those of the engine.

    Raises `TokenizerUnusable`, or `UnsupportedModel` / `FileNotFoundError` for a template that
    cannot be read.
    """

    def __init__(
        self, tokenizer: str | Path | None = None, template: str | Path | None = None
    ) -> None:
        self.encoder = Encoder(tokenizer)
        self.template_failures = 0
        """Calls that the template refused; they were rendered without it."""
        self._template: TemplateWriter | EngineWriter | None = None
        if template is not None:
            from agentkv.trace.template import EngineWriter, TemplateWriter

            folder = Path(template).expanduser()
            if tokenizer is not None and folder.is_dir() and Path(tokenizer).expanduser() == folder:
                self._template = EngineWriter(folder)
            else:
                self._template = TemplateWriter(folder, self.encoder)

    @property
    def name(self) -> str:
        return self.encoder.name

    @property
    def exact(self) -> bool:
        """Whether lengths are a real tokenizer's."""
        return self.encoder.exact

    def render(self, call: Call) -> Rendered:
        """Token ids and spans of a call."""
        if call.blocks is not None and not call.parts:
            return _blocks(call)
        if self._template is not None:
            found = self._template.render(call)
            if found is not None:
                return found
            self.template_failures += 1
        return self._plain(call)

    def _plain(self, call: Call) -> Rendered:
        ids: list[IntArray] = []
        spans: list[Span] = []
        pieces: list[PieceSpan] = []
        at = 0
        for number, part in enumerate(call.parts):
            start = at
            head = special(f"<{part.role or part.kind}>")
            ids.append(head)
            at += 1
            for index, piece in enumerate(part.pieces):
                own = self.piece(piece)
                ids.append(own)
                pieces.append(PieceSpan(number, index, at, at + len(own)))
                at += len(own)
            ids.append(_END)
            at += 1
            spans.append(_span(part, start, at))
        if not call.parts or call.parts[-1].role != "assistant":
            ids.append(special("<assistant>"))
            spans.append(Span(name="generation_prompt", kind="template", start=at, end=at + 1))
            at += 1
        answer = [self.piece(p) for p in call.answer]
        prompt = RenderedPrompt(token_ids=np.concatenate(ids), spans=tuple(spans))
        return Rendered(
            prompt,
            tuple(pieces),
            np.concatenate([*answer, _END]) if answer else _NONE,
            tokens=at,
            encoder=self.encoder,
        )

    def piece(self, piece: Piece) -> IntArray:
        """Ids of one piece: int32."""
        return piece_ids(self.encoder, piece)


def piece_ids(encoder: Encoder, piece: Piece) -> IntArray:
    """Ids of one piece: of its text; of what is no text, or was redacted, ids of its digest."""
    if piece.redacted:
        return opaque(piece.key, max(1, piece.size // 4))
    if piece.kind in OPAQUE:
        return opaque(piece.key, IMAGE_TOKENS)
    before, behind = around(piece.kind, piece.name or "")
    return encoder.encode(f"{before}{piece.text}{behind}", piece.key)


def around(kind: str, name: str) -> tuple[str, str]:
    """What is written in front of the text of a piece, and behind it."""
    match kind:
        case "tool_call":
            return f"{name}(", ")"
        case "document":
            return (f"{name}\n" if name else ""), ""
        case "reasoning":
            return "<think>", "</think>"
        case _:
            return "", ""


def _span(part: Part, start: int, end: int) -> Span:
    return Span(
        name=part.name,
        kind=part.kind,
        start=start,
        end=end,
        role=part.role,
        stability=STABLE.get(part.kind),
        digest=part.key,
        items=tuple(p.name or "" for p in part.pieces if p.kind in ("tool", "document")),
    )


def _blocks(call: Call) -> Rendered:
    assert call.blocks is not None
    size = max(1, call.block_size)
    spans = tuple(
        Span(name=name, kind="context", start=start // size, end=-(-end // size))
        for name, start, end in call.spans
    )
    prompt = RenderedPrompt(token_ids=np.asarray(call.blocks, dtype=np.int32), spans=spans)
    return Rendered(prompt, (), _NONE, per_id=size, tokens=call.length or size * len(call.blocks))


_END = special("<end>")
_NONE = np.empty(0, dtype=np.int32)
