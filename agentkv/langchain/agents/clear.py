"""`ClearToolUsesSticky`: old tool results are cleared in batches, and stay cleared.

`ClearToolUsesEdit(keep=3)` clears one more result with each new one, in the middle of the history:
each call then computes the last three results and all between them again. Here the history is
changed only when enough has gathered, and what was cleared once is cleared in every later call.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from agentkv.langchain.agents.optional import missing
from agentkv.prompt.segment import content_hash

try:
    from langchain.agents.middleware.context_editing import (
        DEFAULT_TOOL_PLACEHOLDER,
        ContextEdit,
        TokenCounter,
    )
except ImportError as error:  # pragma: no cover
    raise missing("ClearToolUsesSticky") from error

REMEMBERED = 65_536
"""Cleared results that are remembered, over all conversations."""


@dataclass(slots=True)
class ClearToolUsesSticky(ContextEdit):
    """For `ContextEditingMiddleware(edits=[ClearToolUsesSticky(...)])`.

    Above `trigger` tokens (of the messages as they would be sent, so with what is cleared already),
    the results older than the last `keep` are cleared, all at once, when there are `batch` of them
    or they hold `clear_at_least` tokens (default: a fifth of the trigger). Below that the prompt may
    stay above the trigger for a few calls; leave room for it.
    """

    trigger: int = 100_000
    keep: int = 3
    batch: int = 8
    clear_at_least: int | None = None
    clear_tool_inputs: bool = False
    exclude_tools: Sequence[str] = ()
    placeholder: str = DEFAULT_TOOL_PLACEHOLDER
    _cleared: OrderedDict[str, None] = field(default_factory=OrderedDict, repr=False)
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.batch < 1 or self.keep < 0:
            raise ValueError("batch must be at least 1, and keep not below 0.")

    def apply(self, messages: list[Any], *, count_tokens: TokenCounter) -> None:
        """Clear in place what was cleared before, and more where it is worth a changed prefix."""
        calls = _calls(messages)
        with self._lock:
            # Once, before anything is cleared: a key may be made of the result's own text.
            found = self._candidates(messages, calls)
            for index, key in found:
                if key in self._cleared:
                    self._cleared.move_to_end(key)
                    self._clear(messages, index, calls)
            if count_tokens(messages) <= self.trigger:
                return
            old = found[: -self.keep] if self.keep else found
            new = [(i, key) for i, key in old if key not in self._cleared]
            least = self.trigger // 5 if self.clear_at_least is None else self.clear_at_least
            if len(new) < self.batch and (
                not new or count_tokens([messages[i] for i, _ in new]) < max(1, least)
            ):
                return
            for index, key in new:
                self._cleared[key] = None
                self._clear(messages, index, calls)
            while len(self._cleared) > REMEMBERED:
                self._cleared.popitem(last=False)

    def _candidates(
        self, messages: Sequence[BaseMessage], calls: dict[str, int]
    ) -> list[tuple[int, str]]:
        """Tool results that may be cleared, oldest first, each with what it is remembered by."""
        out = []
        for i, message in enumerate(messages):
            if not isinstance(message, ToolMessage) or message.tool_call_id not in calls:
                continue
            owner = messages[calls[message.tool_call_id]]
            names = {c["id"]: c["name"] for c in getattr(owner, "tool_calls", ())}
            if (message.name or names.get(message.tool_call_id)) not in self.exclude_tools:
                # Ids of messages are unique; where there is none, the call's id and the text are.
                text = message.id or f"{message.tool_call_id}:{message.content}"
                out.append((i, content_hash(text)))
        return out

    def _clear(self, messages: list[Any], index: int, calls: dict[str, int]) -> None:
        result: ToolMessage = messages[index]
        done = {"cleared": True, "strategy": "clear_tool_uses_sticky"}
        messages[index] = result.model_copy(
            update={
                "artifact": None,
                "content": self.placeholder,
                "response_metadata": {**result.response_metadata, "context_editing": done},
            }
        )
        if self.clear_tool_inputs:
            at = calls[result.tool_call_id]
            message: AIMessage = messages[at]
            emptied = [
                {**c, "args": {}} if c["id"] == result.tool_call_id else c
                for c in message.tool_calls
            ]
            messages[at] = message.model_copy(update={"tool_calls": emptied})


def _calls(messages: Sequence[BaseMessage]) -> dict[str, int]:
    """Id of each tool call -> index of the message that made it."""
    return {
        call["id"] or "": i
        for i, message in enumerate(messages)
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
