"""From LangChain's messages and keyword arguments to a request: layout, parameters, choices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import BaseMessage
from pydantic import Field, PrivateAttr, ValidationInfo, field_validator

from agentkv.client.base import ChatRequest
from agentkv.client.errors import InvalidCall
from agentkv.engine.kv.pins import MOST_SECONDS, PIN_SECONDS
from agentkv.langchain.choice import as_choice, as_response_format, read_allowed
from agentkv.langchain.messages import to_dicts
from agentkv.langchain.record import note_sent
from agentkv.langchain.settings import CONFIG, Settings
from agentkv.langchain.tools import AnyTool, names_of, to_tools
from agentkv.layout import Arrangement, Level, Memory, arrange, conversation_key
from agentkv.layout.lines import Rule, check
from agentkv.prompt.document import Document, as_documents
from agentkv.prompt.prompt import Prompt
from agentkv.prompt.segment import content_hash

SESSIONS = Memory()
"""Orders seen by named sessions. Of the process and not of an instance: frameworks copy models."""

Policy = Literal["auto", "free", "score"]

_HARMLESS = ("stream", "strict", "ls_structured_output_format")
"""Arguments that change nothing here: the grammar holds the model to its schema in any case."""


def _spelled(rule: Rule) -> tuple[str, int]:
    """A rule for lines in full; the `repr` of a pattern is cut off."""
    return (rule, -1) if isinstance(rule, str) else (str(rule.pattern), rule.flags)


def read_documents(value: Any) -> tuple[Document, ...]:
    """A call's documents. Raises `InvalidCall(param="documents")` for what is none."""
    try:
        return as_documents(value)
    except (TypeError, ValueError) as error:
        wrong = InvalidCall(str(error))
        wrong.param = "documents"
        raise wrong from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call made ready: what is sent, how it was laid out, which model was asked for by name."""

    request: ChatRequest
    arrangement: Arrangement
    model: str | None


class Requests(Settings):
    """How a chat model lays out what it sends.

    `learn_moves`: names of units (as a report proposes them) that `layout="learn"` may move.
    `keep_tools`: a tool that this session has shown stays in the prompt when a call leaves it out,
    and is masked while the answer is sampled, so that the prefix stays. For agentkv's own engine
    and server, and for OpenAI.
    `tool_order`, `document_order`: `given` leaves the caller's order instead of a stable one.
    `pin`: keep tools, instructions and documents of each call in the engine's cache, for an hour
    (`True`) or so many seconds after the last call; what is pinned leaves last. agentkv only.
    `drop_lines`, `move_lines`: lines at the head of the system text, by their beginning or by a
    compiled pattern of the whole line, that a call goes without, or that move to the end (a client's
    billing header, a clock that it writes).
    """

    model_config = CONFIG

    layout: Level = "static_first"
    documents: Sequence[Document] = Field(default=(), repr=False)
    tool_auto_policy: Policy = "auto"
    learn_moves: tuple[str, ...] = ()
    keep_tools: bool = False
    tool_order: Literal["name", "given"] = "name"
    document_order: Literal["session", "given"] = "session"
    pin: bool | float = False
    drop_lines: Sequence[str | re.Pattern[str]] = Field(default=(), repr=False)
    move_lines: Sequence[str | re.Pattern[str]] = Field(default=(), repr=False)

    _orders: Memory = PrivateAttr(default_factory=Memory)
    _no_trail: set[str] = PrivateAttr(default_factory=set)
    """Models whose chat template refuses a user message behind a tool result."""

    @field_validator("documents", mode="before")
    @classmethod
    def _read_documents(cls, value: Any) -> tuple[Document, ...]:
        try:
            return as_documents(value)
        except TypeError as error:
            raise ValueError(str(error)) from error

    @field_validator("pin")
    @classmethod
    def _check_pin(cls, value: bool | float) -> bool | float:
        if not isinstance(value, bool) and not 0 < value <= MOST_SECONDS:
            raise ValueError(
                f"pin must be True, or seconds above 0 and at most {MOST_SECONDS:.0f}, got {value!r}."
            )
        return value

    @field_validator("drop_lines", "move_lines")
    @classmethod
    def _check_lines(cls, value: Sequence[Rule], info: ValidationInfo) -> tuple[Rule, ...]:
        return check(tuple(value), str(info.field_name))

    @property
    def _pin_seconds(self) -> float | None:
        if isinstance(self.pin, bool):
            return PIN_SECONDS if self.pin else None
        return self.pin

    def _layout_identity(self) -> dict[str, Any]:
        """What else of the layout changes a prompt: the settings that are not at their default."""
        names = ("learn_moves", "keep_tools", "tool_order", "document_order")
        out = {n: v for n in names if (v := getattr(self, n)) != type(self).model_fields[n].default}
        lines = {"drop": self.drop_lines, "move": self.move_lines}
        out |= {
            f"{k}_lines": content_hash(repr([_spelled(r) for r in v]))
            for k, v in lines.items()
            if v
        }
        if self.extra_body:
            out["extra_body"] = content_hash(repr(self.extra_body))
        return out

    def _prepare(
        self,
        messages: Sequence[BaseMessage],
        stop: list[str] | None,
        run_manager: Any,
        kwargs: dict[str, Any],
    ) -> Call:
        """The request of a call. Raises `InvalidCall` for an argument that nobody reads."""
        kwargs = dict(kwargs)
        params = self._params(stop, kwargs)
        session = self._session(run_manager, kwargs)
        model = kwargs.pop("model", None)
        timeouts = self._timeouts(kwargs)
        policy = kwargs.pop("tool_auto_policy", None) or self.tool_auto_policy
        arrangement = self._arrange(
            messages,
            tools=kwargs.pop("tools", None),
            documents=kwargs.pop("documents", None),
            layout=kwargs.pop("layout", None),
            session=session,
            trailing=(model or self.model) not in self._no_trail,
        )
        allowed = read_allowed(kwargs.pop("allowed_tools", None))
        if arrangement.allowed is not None:
            now = list(arrangement.allowed)
            allowed = now if allowed is None else [name for name in allowed if name in now]
        choice = as_choice(kwargs.pop("tool_choice", None), names_of(arrangement.tools), allowed)
        parallel = kwargs.pop("parallel_tool_calls", None)
        response_format = as_response_format(kwargs.pop("response_format", None))
        unknown = [name for name, v in kwargs.items() if name not in _HARMLESS and v is not None]
        if unknown:
            raise InvalidCall(f"unknown argument{'s'[: len(unknown) > 1]}: {', '.join(unknown)}.")
        request = ChatRequest(
            messages=arrangement.messages,
            tools=arrangement.tools,
            tool_choice=choice,
            parallel_tool_calls=parallel,
            response_format=response_format,
            auto_policy=policy,
            params=params,
            session=session,
            salt=self.cache_salt,
            pin=self._pin_seconds,
            timeouts=timeouts,
        )
        note_sent(run_manager, request)
        return Call(request=request, arrangement=arrangement, model=model)

    def _arrange(
        self,
        messages: Sequence[BaseMessage],
        *,
        tools: Sequence[AnyTool] | None,
        documents: Any,
        layout: str | None,
        session: str | None,
        remember: bool = True,
        trailing: bool = True,
    ) -> Arrangement:
        try:
            prompt = Prompt.build(
                to_dicts(messages),
                to_tools(tools or ()),
                self.documents if documents is None else read_documents(documents),
            )
            memory = SESSIONS if session else self._orders
            return arrange(
                prompt,
                layout or self.layout,
                memory=memory,
                session=session or conversation_key(prompt),
                remember=remember,
                trailing=trailing,
                allow=self.learn_moves,
                keep_tools=self.keep_tools,
                tool_order=self.tool_order,
                document_order=self.document_order,
                drop_lines=self.drop_lines,
                move_lines=self.move_lines,
            )
        except (ValueError, TypeError) as error:
            if isinstance(error, InvalidCall):
                raise
            raise InvalidCall(str(error)) from error

    def _tail_refused(self, error: InvalidCall, call: Call) -> bool:
        """Whether to lay the call out anew: its template did not take the block behind a tool
        result. Remembered, so that it is found out once."""
        if error.param != "messages" or not call.arrangement.trails:
            return False
        self._no_trail.add(call.model or self.model)
        return True
