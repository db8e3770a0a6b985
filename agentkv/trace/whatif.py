"""`what_if`: the rate of a log now, after each mending, after all of them, and at best.

Each row is a replay of a copy; the log itself is never touched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.trace.caches.base import CacheModel
from agentkv.trace.call import Call, Part
from agentkv.trace.fixes import MENDINGS, fix_calls
from agentkv.trace.fixes.apply import WORDS
from agentkv.trace.render import Renderer
from agentkv.trace.replay import Replay, Tally


@dataclass(frozen=True, slots=True)
class Row:
    """`fix`: a mending's name, `all`, or None for the log as it is. Tokens are of its prompts, which
    a mending may make longer (append-only history) or shorter."""

    fix: str | None
    words: str
    rate: float
    request_rate: float
    prompt_tokens: int
    computed_tokens: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "fix": self.fix,
            "words": self.words,
            "hit_rate": self.rate,
            "by_request": self.request_rate,
            "prompt_tokens": self.prompt_tokens,
            "computed_tokens": self.computed_tokens,
        }


def what_if(
    calls: Callable[[], Iterable[Call]],
    fixes: Sequence[str],
    renderer: Renderer,
    cache: Callable[[], CacheModel],
) -> list[Row]:
    """First the log as it is, then all of `fixes` together, then each alone (best first).

    `fixes`: names of `MENDINGS`, as the causes of a report give them. Raises KeyError for others.
    """
    known = [name for name in MENDINGS if name in fixes]
    for name in fixes:
        if name not in MENDINGS:
            raise KeyError(f"no mending is called {name}; there are: {', '.join(MENDINGS)}.")
    rows = [_row(None, "as it is", _replay(calls(), renderer, cache()))]
    if not known:
        return rows
    rows.append(_row("all", "all of these", _replay(fix_calls(calls, known), renderer, cache())))
    alone = [
        _row(name, WORDS[name], _replay(fix_calls(calls, [name]), renderer, cache()))
        for name in known
    ]
    return rows + sorted(alone, key=lambda r: -r.rate)


def _replay(calls: Iterable[Call], renderer: Renderer, cache: CacheModel) -> Tally:
    replay = Replay(cache)
    for call in calls:
        replay.call(call, renderer.render(call))
    return replay.total


def _row(fix: str | None, words: str, total: Tally) -> Row:
    return Row(
        fix, words, total.rate, total.request_rate, total.prompt, total.prompt - total.cached
    )


def write_calls(calls: Iterable[Call], path: Path, sources: Sequence[str | Path]) -> int:
    """Write calls as OpenAI chat requests, one JSON line each, to a new file. Returns how many.

    Raises `FileExistsError`: nothing is overwritten, a log least of all.
    """
    for source in sources:
        if str(source) != "-" and Path(source).resolve() == path.resolve():
            raise FileExistsError(f"{path} is the log itself; name another file.")
    count = 0
    with path.open("x", encoding="utf-8") as out:
        for call in calls:
            out.write(json.dumps(as_openai(call), ensure_ascii=False) + "\n")
            count += 1
    return count


def as_openai(call: Call) -> dict[str, Any]:
    """A call as a request of OpenAI's chat API, as near as it can be said there."""
    messages: list[dict[str, Any]] = []
    tools: list[Any] = []
    number = 0
    open_calls: list[str] = []
    for part in call.parts:
        if part.kind == "tools":
            tools = [_json(p.text) for p in part.pieces]
            continue
        role = {"model": "assistant", "developer": "system", "function": "tool"}.get(
            part.role or "", part.role or "user"
        )
        results = [p for p in part.pieces if p.kind == "tool_result"]
        if role == "tool" or results:
            for piece in results or part.pieces:
                one = open_calls.pop(0) if open_calls else f"call_{number}"
                messages.append({"role": "tool", "tool_call_id": one, "content": piece.text})
            continue
        message: dict[str, Any] = {"role": role, "content": _content(part)}
        asked = [p for p in part.pieces if p.kind == "tool_call"]
        if asked:
            message["tool_calls"] = []
            for piece in asked:
                number += 1
                open_calls.append(f"call_{number}")
                message["tool_calls"].append(
                    {
                        "id": open_calls[-1],
                        "type": "function",
                        "function": {"name": piece.name or "", "arguments": piece.text},
                    }
                )
        messages.append(message)
    out: dict[str, Any] = {"model": call.model, "messages": messages}
    if tools:
        out["tools"] = tools
    if call.session is not None:
        out["metadata"] = {"session_id": call.session}
    if call.time is not None:
        out["timestamp"] = call.time
    return out


def _content(part: Part) -> Any:
    blocks: list[dict[str, Any]] = []
    for piece in part.pieces:
        if piece.kind in ("text", "document"):
            blocks.append({"type": "text", "text": piece.text})
        elif piece.kind == "image":
            blocks.append({"type": "image_url", "image_url": {"url": piece.text}})
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return blocks[0]["text"]
    return blocks or ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"type": "function", "function": {"name": "tool", "description": text}}
