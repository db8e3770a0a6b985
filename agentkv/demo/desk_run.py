"""The support desk's agent, in two layouts.

`off`: as agents are usually written. The clock and the customer stand at the top of the system
message, and the tools come in whatever order their registries answer in.
`static_first`: the same content, declared. The layout puts it where it can be reused.

The script decides which tools are called; they run against the database, their results go back as
tool messages, and the model writes every answer. Each run's own answers are its own history.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool

from agentkv.demo.desk import connect, fill
from agentkv.demo.policy import INSTRUCTIONS, POLICY
from agentkv.demo.result import CallRow, RunResult
from agentkv.demo.script import Conversation
from agentkv.demo.tools import desk_tools
from agentkv.prompt import Document, static, volatile
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.langchain import ChatAgentKV

Clock = Callable[[], str]
OnCall = Callable[[CallRow], None]
RELIST_EVERY = 2
"""The tools are listed anew, in another order, for every second model call."""


def wall_clock() -> str:
    """Now, to the millisecond, as a log line has it."""
    now = datetime.now()
    return f"{now:%H:%M:%S}.{now.microsecond // 1000:03} on {now:%d %B}"


class ToolOrder:
    """The tools in an order that changes: the same sequence of orders in every run."""

    def __init__(self, tools: Sequence[BaseTool], seed: int) -> None:
        self._tools = list(tools)
        self._rng = random.Random(seed)
        self._asked = 0

    def next(self) -> list[BaseTool]:
        """The tools of the next model call."""
        if self._asked and self._asked % RELIST_EVERY == 0:
            before = list(self._tools)
            while self._tools == before:
                self._rng.shuffle(self._tools)
        self._asked += 1
        return list(self._tools)


class DeskAgent:
    """Runs conversations on one model. `layout` says how the prompt is written."""

    def __init__(
        self, model: ChatAgentKV, layout: str, tools: Sequence[BaseTool], *, clock: Clock, seed: int
    ) -> None:
        self.model = model
        self.layout = layout
        self.tools = {tool.name: tool for tool in tools}
        self.clock = clock
        self.order = ToolOrder(tools, seed)

    def run(self, conversation: Conversation) -> Iterator[CallRow]:
        """Play one conversation; yields a row after each model call."""
        history: list[BaseMessage] = []
        made = calls = 0
        for number, turn in enumerate(conversation.turns, start=1):
            history.append(HumanMessage(turn.user))
            said = ""
            for group in turn.rounds:
                requests = []
                for call in group:
                    made += 1
                    requests.append(
                        {"name": call.tool, "args": dict(call.args), "id": f"call_{made}"}
                    )
                # What the model wrote before these calls is part of the same message.
                history.append(AIMessage(said, tool_calls=requests))
                history += [self._use(request) for request in requests]
                calls += 1
                answer = self._ask(conversation, history, self.order.next())
                said = answer.text
                report = CacheReport.from_message(answer)
                if report is None:
                    raise RuntimeError("the model's answer carries no cache report")
                yield CallRow(conversation.id, number, calls, report, said)
            history.append(AIMessage(said))

    def _use(self, request: dict[str, Any]) -> ToolMessage:
        result = self.tools[request["name"]].invoke(request["args"])
        return ToolMessage(result, tool_call_id=request["id"], name=request["name"])

    def _ask(
        self, conversation: Conversation, history: list[BaseMessage], tools: list[BaseTool]
    ) -> AIMessage:
        now = f"{self.clock()} is the current time. The customer is {conversation.customer}.\n"
        # The session is what the report compares a call with. Under LangGraph it is the thread.
        more: dict[str, Any] = {"session": f"{self.layout}:{conversation.id}"}
        bound = self.model.bind_tools(tools)
        if self.layout == "off":
            system = SystemMessage(f"{now}\n{INSTRUCTIONS}\n\n{POLICY}")
            answer = bound.invoke([system, *history], **more)
        else:
            system = SystemMessage([volatile(now, "clock"), static(INSTRUCTIONS)])
            more["documents"] = [Document("policy", POLICY)]
            answer = bound.invoke([system, *history], **more)
        if not isinstance(answer, AIMessage):
            raise TypeError(f"the model answered with a {type(answer).__name__}")
        return answer


def run_desk(
    model: ChatAgentKV,
    layout: str,
    conversations: Sequence[Conversation],
    database: Path,
    *,
    clock: Clock = wall_clock,
    seed: int = 0,
    on_call: OnCall = lambda row: None,
) -> RunResult:
    """All conversations over a database that is made at `database`. Deterministic but for the
    clock."""
    fill(database)
    result = RunResult(layout)
    connection = connect(database)
    try:
        agent = DeskAgent(model, layout, desk_tools(connection), clock=clock, seed=seed)
        for conversation in conversations:
            for row in agent.run(conversation):
                result.calls.append(row)
                on_call(row)
    finally:
        connection.close()
    return result
