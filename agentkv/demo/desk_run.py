"""The support desk's agent, in two layouts.

`off`: as agents are usually written. The clock and the customer stand at the top of the system
message, and the tools come in whatever order their registries answer in.
`static_first`: the same content, declared. The layout puts it where it can be reused.

The model chooses: it answers, or calls tools, which run against the database; their results go
back as tool messages until it answers, or has had its `steps` and must. What it got wrong comes
back to it as a result too. Each run's own answers are its own history.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.tools import BaseTool
from pydantic import ValidationError

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
STEPS = 2
"""Model calls of a turn that may use tools."""
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
    """Runs conversations on one model. `layout` says how the prompt is written, `steps` how many
    of a turn's model calls may use tools; after them the model has to answer."""

    def __init__(
        self,
        model: ChatAgentKV,
        layout: str,
        tools: Sequence[BaseTool],
        *,
        clock: Clock,
        seed: int,
        steps: int = STEPS,
    ) -> None:
        self.model = model
        self.layout = layout
        self.tools = {tool.name: tool for tool in tools}
        self.clock = clock
        self.steps = steps
        self.order = ToolOrder(tools, seed)

    def run(self, conversation: Conversation) -> Iterator[CallRow]:
        """Play one conversation; yields a row after each model call."""
        history: list[BaseMessage] = []
        calls = 0
        for turn, user in enumerate(conversation.turns, start=1):
            history.append(HumanMessage(user))
            for step in range(self.steps + 1):
                answer = self._ask(conversation, history, last=step == self.steps)
                calls += 1
                history.append(answer)
                yield _row(conversation.id, turn, calls, answer)
                results = [
                    *map(self._use, answer.tool_calls),
                    *map(_broken, answer.invalid_tool_calls),
                ]
                if not results:
                    break
                history += results

    def _use(self, call: ToolCall) -> ToolMessage:
        """Run one tool call. What the model got wrong is told to the model."""
        tool = self.tools.get(call["name"])
        if tool is None:
            return _failed(call["id"], call["name"], f"there is no tool {call['name']}")
        try:
            result = tool.invoke(call["args"])
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            return _failed(call["id"], call["name"], f"{where}: {first['msg']}")
        return ToolMessage(result, tool_call_id=call["id"], name=call["name"])

    def _ask(
        self, conversation: Conversation, history: list[BaseMessage], *, last: bool
    ) -> AIMessage:
        now = f"Time: {self.clock()}\n"
        customer = f"Customer: {conversation.customer}\n"
        # The session is what the report compares a call with. Under LangGraph it is the thread.
        more: dict[str, Any] = {"session": f"{self.layout}:{conversation.id}"}
        # `none` leaves the tools in the prompt: only the output is bound.
        choice = "none" if last else "auto"
        bound = self.model.bind_tools(
            self.order.next(), tool_choice=choice, parallel_tool_calls=False
        )
        if self.layout == "off":
            system = SystemMessage(f"{now}{customer}\n{INSTRUCTIONS}\n\n{POLICY}")
        else:
            system = SystemMessage(
                [
                    volatile(now, "clock"),
                    volatile(customer, "customer", stability="session"),
                    static(INSTRUCTIONS),
                ]
            )
            more["documents"] = [Document("policy", POLICY)]
        answer = bound.invoke([system, *history], **more)
        if not isinstance(answer, AIMessage):
            raise TypeError(f"the model answered with a {type(answer).__name__}")
        return answer


def _row(conversation: str, turn: int, number: int, answer: AIMessage) -> CallRow:
    report = CacheReport.from_message(answer)
    if report is None:
        raise RuntimeError("the model's answer carries no cache report")
    tools = tuple(call["name"] for call in answer.tool_calls)
    return CallRow(conversation, turn, number, report, answer.text, tools)


def _failed(call_id: str | None, name: str | None, error: str) -> ToolMessage:
    return ToolMessage(
        json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":")),
        tool_call_id=call_id or "",
        name=name,
        status="error",
    )


def _broken(call: InvalidToolCall) -> ToolMessage:
    """The answer to a call whose arguments are not JSON."""
    return _failed(call["id"], call["name"], call["error"] or "the arguments are not JSON")


def run_desk(
    model: ChatAgentKV,
    layout: str,
    conversations: Sequence[Conversation],
    database: Path,
    *,
    clock: Clock = wall_clock,
    seed: int = 0,
    steps: int = STEPS,
    on_call: OnCall = lambda row: None,
) -> RunResult:
    """All conversations over a database that is made at `database`. Deterministic but for the
    clock."""
    fill(database)
    result = RunResult(layout)
    connection = connect(database)
    try:
        agent = DeskAgent(
            model, layout, desk_tools(connection), clock=clock, seed=seed, steps=steps
        )
        for conversation in conversations:
            for row in agent.run(conversation):
                result.calls.append(row)
                on_call(row)
    finally:
        connection.close()
    return result
