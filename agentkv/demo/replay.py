"""Recorded sessions through the model: the recorded answers are fed back, not the model's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, convert_to_messages

from agentkv.client.errors import ContextOverflow
from agentkv.demo.result import CallRow, RunResult
from agentkv.demo.traces import Message, TraceSession
from agentkv.prompt import Document
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.langchain import ChatAgentKV


def run_traces(
    model: ChatAgentKV,
    layout: str,
    sessions: Sequence[TraceSession],
    *,
    on_call: Callable[[CallRow], None] = lambda row: None,
) -> RunResult:
    """Every recorded call, in order. A call that exceeds the context window is counted as refused;
    the session goes on."""
    result = RunResult(layout)
    for session in sessions:
        history: list[Message] = []
        for number, call in enumerate(session.calls, start=1):
            history = list(call.fresh) if call.restart else [*history, *call.fresh]
            extra: dict[str, Any] = {"session": f"{layout}:{session.id}"}
            if call.documents:
                # Found for this turn's question: they change with it.
                extra["documents"] = [Document(d.id, d.text, "turn") for d in call.documents]
            # Tools are part of the prompt, but a call of the model's own would have no result.
            bound = model.bind_tools(list(call.tools), tool_choice="none") if call.tools else model
            said: Message | None = call.recorded
            try:
                answer = bound.invoke(convert_to_messages(history), **extra)
            except ContextOverflow:
                result.refused += 1
            else:
                row = _row(session.id, call.turn, number, answer)
                result.calls.append(row)
                on_call(row)
                said = said or {"role": "assistant", "content": row.answer}
            if said is not None:
                history.append(said)
    return result


def _row(conversation: str, turn: int, number: int, answer: Any) -> CallRow:
    report = CacheReport.from_message(answer)
    if report is None or not isinstance(answer, AIMessage):
        raise RuntimeError("the model's answer carries no cache report")
    return CallRow(conversation, turn, number, report, answer.text)
