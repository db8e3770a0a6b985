"""The plan of one model call of an agent: what is sent, and what the model may call of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from agentkv.langchain.agents.system import declared, rearranged
from agentkv.langchain.agents.threads import Thread, Threads
from agentkv.prompt.segment import content_hash
from agentkv.report.parts import LayoutUse

Dynamic = Literal["declared", "tail_message"]
ToolPolicy = Literal["union_masked", "stable_order", "leave"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to override in a request. `allowed` is None where no tool has to be masked."""

    system: SystemMessage | None
    messages: list[Any]
    tools: list[Any]
    allowed: tuple[str, ...] | None = None
    layout: LayoutUse = field(default_factory=lambda: LayoutUse("static_first"))


class Planner:
    """Makes plans, and remembers for each thread what they need to stay the same."""

    def __init__(
        self,
        *,
        dynamic: Dynamic,
        tool_policy: ToolPolicy,
        tools: Sequence[Any],
        keep: Callable[[str], bool],
        trailing: bool,
        threads: int,
    ) -> None:
        self._dynamic = dynamic
        self._tool_policy = tool_policy
        self._tools = {tool_name(t): t for t in tools}
        self._keep = keep
        self._trailing = trailing
        self._threads = Threads(threads)
        self._lock = threading.Lock()

    def plan(
        self,
        system: SystemMessage | None,
        messages: Sequence[BaseMessage],
        tools: Sequence[Any],
        *,
        thread: str | None,
        masks: bool,
        arranges: bool,
    ) -> Plan:
        """The plan of a call. `masks`: the model can forbid tools that are in its prompt.
        `arranges`: it moves marked text itself."""
        with self._lock:
            state = self._threads.get(thread or conversation(messages))
            left: list[tuple[str, str]] = []
            if system is not None and self._dynamic == "tail_message":
                system, left = declared(
                    system, lambda texts: self._threads.pieces(state, texts), self._keep
                )
            sent, allowed, moved, masked = self._laid_tools(state, tools, masks)
        layout = LayoutUse("static_first", refused=tuple(left), moved=moved, masked=masked)
        out = list(messages)
        if not arranges:
            system, out, done = rearranged(system, out, trailing=self._trailing)
            layout = layout.joined(done)
        with self._lock:
            state.sent = (system, sent)
        return Plan(system=system, messages=out, tools=sent, allowed=allowed, layout=layout)

    def sent(self, thread: str | None, messages: Sequence[BaseMessage]) -> Any:
        """System message and tools of the thread's last call, or None."""
        with self._lock:
            state = self._threads.peek(thread or conversation(messages))
            return state.sent if state is not None else None

    def __len__(self) -> int:
        with self._lock:
            return len(self._threads)

    def _laid_tools(
        self, state: Thread, tools: Sequence[Any], masks: bool
    ) -> tuple[list[Any], tuple[str, ...] | None, tuple[tuple[str, str], ...], tuple[str, ...]]:
        """Tools as they are sent, who may be called, what moved, and who is masked."""
        given = {tool_name(tool): tool for tool in tools}
        if self._tool_policy == "leave" or len(given) != len(tools):
            return list(tools), None, (), ()
        known = state.tools
        if not known and masks and self._tool_policy == "union_masked":
            known.update(self._tools)
        # A known name keeps its place with today's definition; a new one goes to the end.
        known.update(given)
        if masks and self._tool_policy == "union_masked":
            sent = list(known.values())
            masked = tuple(name for name in known if name not in given)
        else:
            sent, masked = [known[name] for name in known if name in given], ()
        order = [tool_name(tool) for tool in sent if tool_name(tool) in given]
        moved = (("tools", "stable_order"),) if order != list(given) else ()
        return sent, tuple(given) if masked else None, moved, masked


def tool_name(tool: Any) -> str:
    """The name of a tool in any of the forms that agents pass around."""
    if isinstance(tool, Mapping):
        function = tool.get("function")
        inner = function if isinstance(function, Mapping) else tool
        return str(inner.get("name") or inner.get("title") or inner.get("type") or "")
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", None) or "")


def conversation(messages: Sequence[BaseMessage]) -> str:
    """Stands for a thread that has no id: its first user message, which stays as it grows."""
    for message in messages:
        if isinstance(message, HumanMessage):
            return "first:" + content_hash(message.id or str(message.content))
    return ""
