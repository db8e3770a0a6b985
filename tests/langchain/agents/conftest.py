"""A chat model of another provider that keeps what it was sent, and agents on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import Field

from agentkv.langchain.agents.plan import tool_name


class Recorder(BaseChatModel):
    """Answers from a script and records messages, tools and settings of every call."""

    script: list[AIMessage] = Field(default_factory=list)
    calls: list[dict[str, Any]] = Field(default_factory=list)

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=list(tools), **kwargs)

    def _generate(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> ChatResult:
        kwargs.pop("run_manager", None)
        self.calls.append({"messages": list(messages), **kwargs})
        at = len(self.calls) - 1
        answer = self.script[at] if at < len(self.script) else AIMessage("done")
        usage: Any = {
            "input_tokens": 100,
            "output_tokens": 1,
            "total_tokens": 101,
            "input_token_details": {"cache_read": 40},
        }
        message = answer.model_copy(update={"usage_metadata": usage})
        return ChatResult(generations=[ChatGeneration(message=message)])

    @property
    def _llm_type(self) -> str:
        return "recorder"

    def system(self, call: int) -> str:
        first = self.calls[call]["messages"][0]
        return first.text if first.type == "system" else ""

    def tail(self, call: int) -> str:
        return self.calls[call]["messages"][-1].text

    def tools(self, call: int) -> list[str]:
        return [tool_name(t) for t in self.calls[call].get("tools", ())]


def make_tool(name: str) -> BaseTool:
    def look(key: str) -> str:
        return f"{name} of {key}"

    return StructuredTool.from_function(look, name=name, description=f"Look up {name}.")


def call(name: str, number: int = 0) -> AIMessage:
    """An answer that calls a tool."""
    request = {"name": name, "args": {"key": "k"}, "id": f"id_{name}_{number}"}
    return AIMessage("", tool_calls=[request])


@pytest.fixture
def recorder() -> Callable[..., Recorder]:
    return lambda *script: Recorder(script=list(script))
