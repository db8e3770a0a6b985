"""Cost of the layer: what the layout adds to a call, before the engine sees it.

Calls of an agent with 50 tools and 100 messages, each with a new clock and two new messages at the
end: messages to a `Prompt`, `arrange` with session memory, the canonical JSON of
the tools, and the bookkeeping of spans (which unit each part of the prompt is, for the report).
"""

from __future__ import annotations

import gc
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from agentkv.bench.check import Report
from agentkv.engine.text.marks import Pen, read_marks
from agentkv.engine.text.messages import Call, Mark, Message, Part
from agentkv.engine.text.owners import assign_owners
from agentkv.engine.text.spans import divide, token_spans
from agentkv.engine.types import Span
from agentkv.layout import Memory, arrange
from agentkv.prompt import Document, Prompt, canonical_json, static, volatile

TARGET_MS = 5.0

T = TypeVar("T")
_CONTROL = re.compile(r"<\|im_start\|>|<\|im_end\|>")


def run(
    *, tools: int = 50, messages: int = 100, calls: int = 40, level: str = "static_first"
) -> Report:
    """Milliseconds of each part of the layer, and the target for their sum."""
    report = Report(
        bench="layer",
        title=f"Cost of the layout, {tools} tools and {messages} messages ({calls} calls)",
        notes=[
            "Time of the CPU, so that a busy machine does not count. first: nothing remembered yet. later: median and 95th percentile of the rest."
        ],
    )
    memory = Memory()
    spent: dict[str, list[float]] = {}
    history = _history(messages - 2)
    documents = [Document(f"d{i}", f"Clause {i}. " * 40) for i in range(4)]

    def timed(name: str, work: Callable[[], T]) -> T:
        start = time.thread_time_ns()
        result = work()
        spent.setdefault(name, []).append((time.thread_time_ns() - start) / 1e6)
        return result

    enabled = gc.isenabled()
    gc.disable()
    try:
        for k in range(calls):
            given = _tools(tools)
            head = {"role": "system", "content": [volatile(f"Now: {k}.", name="clock"), _RULES]}
            talk = [head, *history, *_turn(1000 + k)][:messages]
            prompt = timed("Prompt.build", lambda: Prompt.build(talk, given, documents))  # noqa: B023
            laid = timed(
                "arrange",
                lambda: arrange(prompt, level, memory=memory, session="s"),  # noqa: B023
            )
            timed("canonical JSON", lambda: [canonical_json(t) for t in laid.tools])  # noqa: B023
            read = [_message(m) for m in laid.messages]
            timed("spans", lambda: _bookkeeping(read, laid.tools))  # noqa: B023
            gc.collect(0)
    finally:
        if enabled:
            gc.enable()
    spent["all"] = [sum(parts) for parts in zip(*spent.values(), strict=True)]
    for name, values in spent.items():
        later = values[1:] or values
        report.rows.append(
            {
                "part": name,
                "first_ms": values[0],
                "median_ms": statistics.median(later),
                "p95_ms": sorted(later)[int(0.95 * (len(later) - 1))],
            }
        )
    whole = report.rows[-1]
    report.check(
        "after the first call",
        f"median {whole['median_ms']:.2f} ms, p95 {whole['p95_ms']:.2f} ms",
        f"< {TARGET_MS:.0f} ms",
        whole["median_ms"] < TARGET_MS,
    )
    return report


_RULES = static("You are the support agent of a parcel service. Be kind, and be brief.\n" * 20)


def _tools(count: int) -> list[dict[str, Any]]:
    """New dicts for every call, as frameworks make them."""
    return [
        {
            "type": "function",
            "function": {
                "name": f"tool_{i:03d}",
                "description": f"Does the {i}th thing, and says how it went. " * 3,
                "parameters": {
                    "type": "object",
                    "properties": {
                        name: {"type": "string", "description": f"The {name} of it."}
                        for name in ("parcel", "town", "street", "reason", "note")
                    },
                    "required": ["parcel", "town"],
                },
            },
        }
        for i in range(count)
    ]


def _turn(index: int) -> list[dict[str, Any]]:
    function = {"name": "tool_001", "arguments": f'{{"parcel": "P-{index}", "town": "Bonn"}}'}
    call = {"id": f"c{index}", "type": "function", "function": function}
    result = f"Parcel {index} was seen in Bonn. " * 6
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": result, "tool_call_id": f"c{index}"},
    ]


def _history(count: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"role": "user", "content": "Where is my parcel?"}]
    while len(out) < count - 1:
        out += _turn(len(out))
    return out[: count - 1]


def _bookkeeping(read: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Sequence[Span]:
    """What telling the parts of a prompt apart costs: owners, marks in the text, regions, spans.

    The text is written as ChatML here; reading the messages, the template engine and the tokenizer
    come with or without the layer and are left out. A token is taken for four characters.
    """
    owners = assign_owners(read, [dict(t) for t in tools])
    pen = Pen(_CONTROL, literals=True, contents=True, names=True)
    text = "".join(
        f"<|im_start|>{m.role}\n"
        + pen.content([(owners.parts[i][j], p.text) for j, p in enumerate(m.parts)])
        + "".join(pen.name(owners.calls[i], c.name) + canonical_json(c.arguments) for c in m.calls)
        + "<|im_end|>\n"
        for i, m in enumerate(read)
    )
    marked = read_marks(text)
    regions = divide(
        marked.text,
        marked.events,
        owners,
        [(m.start(), m.end()) for m in _CONTROL.finditer(marked.text)],
        turn_ends=frozenset(["<|im_end|>"]),
        generation_prompt=False,
    )
    starts = np.arange(0, len(marked.text), 4, dtype=np.int32)
    return token_spans(regions, starts, marked.text)


def _message(message: dict[str, Any]) -> Message:
    content = message["content"] or ""
    given: list[Any] = [{"text": content}] if isinstance(content, str) else content
    parts = tuple(
        Part(
            p["text"],
            Mark(p["agentkv"]["name"], p["agentkv"]["kind"], p["agentkv"]["stability"])
            if "agentkv" in p
            else None,
        )
        for p in given
        if p["text"]
    )
    calls = tuple(
        Call(c["function"]["name"], c["function"]["arguments"], c["id"])
        for c in message.get("tool_calls", ())
    )
    return Message(message["role"], parts, calls)
