"""Looking ahead: how a call would be laid out, its size, and computing its prefix beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.language_models.base import LanguageModelInput
from langchain_core.messages import BaseMessage, HumanMessage

from agentkv.client.base import ChatRequest, Timeouts
from agentkv.langchain.request import Requests
from agentkv.langchain.settings import CONFIG
from agentkv.langchain.threaded import Threaded
from agentkv.langchain.tools import AnyTool
from agentkv.layout import Arrangement
from agentkv.prompt.prompt import SYSTEM_ROLES
from agentkv.report.report import CacheReport


class Ahead(Requests, Threaded):
    """What can be said about a call without an answer to it."""

    model_config = CONFIG

    def explain(
        self,
        messages: LanguageModelInput,
        tools: Sequence[AnyTool] | None = None,
        *,
        documents: Any = None,
        session: str | None = None,
    ) -> Arrangement:
        """How a call would be laid out: the order, what would move, and what may not. Runs nothing
        and remembers nothing."""
        return self._arrange(
            self._convert_input(messages).to_messages(),
            tools=tools,
            documents=documents,
            layout=None,
            session=session or self.session,
            remember=False,
        )

    def warm(
        self,
        messages: LanguageModelInput = (),
        tools: Sequence[AnyTool] | None = None,
        *,
        documents: Any = None,
        session: str | None = None,
    ) -> CacheReport:
        """Compute a prompt's prefix now, so that the first call finds it: tools, system text and
        documents (what changes by the call is left out), or a whole conversation."""
        given = self._convert_input(messages).to_messages()
        talks = any(isinstance(m, HumanMessage) for m in given)
        name = session or self.session
        arrangement = self._arrange(
            given if talks else [*given, HumanMessage("")],
            tools=tools,
            documents=documents,
            layout=None,
            session=name,
        )
        wire = list(arrangement.messages)
        if not talks:
            lead = [m for m in wire if m["role"] in SYSTEM_ROLES]
            wire = lead or wire[:1]
        request = ChatRequest(
            messages=wire,
            tools=arrangement.tools,
            params=replace(self._params(None, {}), max_tokens=0, min_tokens=0),
            session=name,
            salt=self.cache_salt,
            pin=self._pin_seconds,
            add_generation_prompt=False,
            timeouts=Timeouts.of(self.timeout),
        )
        return self._client().send(request).report.with_layout(arrangement)

    def get_token_ids(self, text: str) -> list[int]:
        """Token ids of a text by the model's own tokenizer."""
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        return self._client().encode(text)

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """Tokens of the whole prompt that these messages and tools would make, exactly."""
        arrangement = self._arrange(
            messages,
            tools=tools,
            documents=None,
            layout=None,
            session=None,
            remember=False,
            trailing=self.model not in self._no_trail,
        )
        return self._client().count(arrangement.messages, arrangement.tools)
