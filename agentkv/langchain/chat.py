"""`ChatAgentKV`: a LangChain chat model that lays out its prompts and reports what they reused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.base import LangSmithParams, LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.model_profile import ModelProfile
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field, PrivateAttr, field_validator

from agentkv.client.base import ChatDelta, ChatReply, ChatRequest, Timeouts
from agentkv.client.errors import InvalidCall, NotSupported
from agentkv.langchain import usage
from agentkv.langchain.messages import to_dicts
from agentkv.langchain.profile import local_profile
from agentkv.langchain.settings import CONFIG, Settings
from agentkv.langchain.tools import AnyTool, check_choice, to_tools
from agentkv.layout import Arrangement, Level, Memory, arrange, conversation_key
from agentkv.prompt.document import Document, as_documents
from agentkv.prompt.prompt import SYSTEM_ROLES, Prompt
from agentkv.prompt.segment import content_hash
from agentkv.report.report import CacheReport

SESSIONS = Memory()
"""Orders seen by named sessions. Of the process and not of an instance: frameworks copy models."""

_HARMLESS = ("stream", "parallel_tool_calls", "strict", "ls_structured_output_format")


class ChatAgentKV(Settings, BaseChatModel):
    """A chat model over the in-process engine or `agentkv serve`.

    `layout`: `static_first` (tools, instructions and documents ahead, what changes by the call at
    the end), `canonical` (nothing moves but tools keep one order and one JSON form) or `off`.
    `documents`: texts that go into the prompt as such; a call's own `documents=` replaces them.

    Every answer has `usage_metadata` with `cache_read` and `cache_creation`, and
    `response_metadata["agentkv"]`: what was reused, segment by segment, and why the rest was not.

        llm = ChatAgentKV(documents=[Document("policy", text)])
        llm.invoke([SystemMessage([static("You are ..."), volatile(f"Now: {now}", name="clock")]),
                    HumanMessage("...")])
    """

    model_config = CONFIG

    layout: Level = "static_first"
    documents: tuple[Document, ...] = Field(default=(), repr=False)

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

    # -- one call --------------------------------------------------------------------------------

    def _prepare(
        self,
        messages: Sequence[BaseMessage],
        stop: list[str] | None,
        run_manager: Any,
        kwargs: dict[str, Any],
    ) -> tuple[ChatRequest, Arrangement, str | None]:
        """The request of a call, its layout, and the model that was asked for by name."""
        kwargs = dict(kwargs)
        params = self._params(stop, kwargs)
        session = self._session(run_manager, kwargs)
        model = kwargs.pop("model", None)
        timeouts = Timeouts.of(kwargs.pop("timeout", None) or self.timeout)
        choice = check_choice(kwargs.pop("tool_choice", None))
        if kwargs.pop("response_format", None) is not None:
            raise NotSupported("response_format needs a grammar, which this version does not have.")
        arrangement = self._arrange(
            messages,
            tools=kwargs.pop("tools", None),
            documents=kwargs.pop("documents", None),
            layout=kwargs.pop("layout", None),
            session=session,
            trailing=(model or self.model) not in self._no_trail,
        )
        unknown = [name for name, v in kwargs.items() if name not in _HARMLESS and v is not None]
        if unknown:
            raise InvalidCall(f"unknown argument{'s'[: len(unknown) > 1]}: {', '.join(unknown)}.")
        request = ChatRequest(
            messages=arrangement.messages,
            tools=arrangement.tools,
            tool_choice=choice,
            params=params,
            session=session,
            salt=self.cache_salt,
            timeouts=timeouts,
        )
        return request, arrangement, model

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
                self.documents if documents is None else documents,
            )
            memory = SESSIONS if session else self._orders
            return arrange(
                prompt,
                layout or self.layout,
                memory=memory,
                session=session or conversation_key(prompt),
                remember=remember,
                trailing=trailing,
            )
        except (ValueError, TypeError) as error:
            if isinstance(error, InvalidCall):
                raise
            raise InvalidCall(str(error)) from error

    def _tail_refused(
        self, error: InvalidCall, arrangement: Arrangement, model: str | None
    ) -> bool:
        """Whether to lay the call out anew: its template did not take the block behind a tool
        result. Remembered, so that it is found out once."""
        if error.param != "messages" or not arrangement.trails:
            return False
        self._no_trail.add(model or self.model)
        return True

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request, arrangement, model = self._prepare(messages, stop, run_manager, kwargs)
        try:
            reply = self._client(model).send(request)
        except InvalidCall as error:
            if not self._tail_refused(error, arrangement, model):
                raise
            return self._generate(messages, stop, run_manager, **kwargs)
        return self._result(reply, arrangement)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request, arrangement, model = self._prepare(messages, stop, run_manager, kwargs)
        try:
            reply = await self._client(model).asend(request)
        except InvalidCall as error:
            if not self._tail_refused(error, arrangement, model):
                raise
            return await self._agenerate(messages, stop, run_manager, **kwargs)
        return self._result(reply, arrangement)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        request, arrangement, model = self._prepare(messages, stop, run_manager, kwargs)
        try:
            for delta in self._client(model).stream(request):
                chunk = self._chunk(delta, arrangement)
                if chunk is not None:
                    if run_manager is not None:
                        run_manager.on_llm_new_token(str(chunk.message.content), chunk=chunk)
                    yield chunk
        except InvalidCall as error:
            # A refused prompt is refused before the first token, so nothing was yielded yet.
            if not self._tail_refused(error, arrangement, model):
                raise
            yield from self._stream(messages, stop, run_manager, **kwargs)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        request, arrangement, model = self._prepare(messages, stop, run_manager, kwargs)
        try:
            async for delta in self._client(model).astream(request):
                chunk = self._chunk(delta, arrangement)
                if chunk is not None:
                    if run_manager is not None:
                        text = str(chunk.message.content)
                        await run_manager.on_llm_new_token(text, chunk=chunk)
                    yield chunk
        except InvalidCall as error:
            if not self._tail_refused(error, arrangement, model):
                raise
            async for chunk in self._astream(messages, stop, run_manager, **kwargs):
                yield chunk

    def _result(self, reply: ChatReply, arrangement: Arrangement) -> ChatResult:
        report = reply.report.with_layout(arrangement)
        message = AIMessage(
            content=reply.text,
            usage_metadata=usage.usage_metadata(report),
            response_metadata=usage.metadata(reply, report, self.report),
        )
        info = {"finish_reason": reply.finish_reason}
        return ChatResult(
            generations=[ChatGeneration(message=message, generation_info=info)],
            llm_output=usage.llm_output(reply),
        )

    def _chunk(self, delta: ChatDelta, arrangement: Arrangement) -> ChatGenerationChunk | None:
        """A delta as a chunk. Usage and report are on the last one only: chunks are summed."""
        if delta.reply is None:
            if not delta.text:
                return None
            return ChatGenerationChunk(message=AIMessageChunk(content=delta.text))
        report = delta.reply.report.with_layout(arrangement)
        return ChatGenerationChunk(
            message=AIMessageChunk(
                content="",
                usage_metadata=usage.usage_metadata(report),
                response_metadata=usage.metadata(delta.reply, report, self.report),
                chunk_position="last",
            ),
            generation_info={"finish_reason": delta.reply.finish_reason},
        )

    def _combine_llm_outputs(self, llm_outputs: list[dict[str, Any] | None]) -> dict[str, Any]:
        return usage.combined(llm_outputs)

    # -- tools, documents ------------------------------------------------------------------------

    def bind_tools(
        self,
        tools: Sequence[AnyTool],
        *,
        tool_choice: Any = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Put tools into every prompt of the returned model.

        `tool_choice` may be `auto` or `none` (the tools stay in the prompt either way, so that
        the prefix stays). Raises `NotSupported` for a forced call and for `response_format`.
        """
        choice = check_choice(tool_choice)
        if kwargs.get("response_format") is not None:
            raise NotSupported("response_format needs a grammar, which this version does not have.")
        if choice is not None:
            kwargs["tool_choice"] = choice
        return self.bind(tools=to_tools(tools, strict=strict), **kwargs)

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        """Not offered yet: without a grammar the promise could not be kept."""
        raise NotSupported(
            "with_structured_output needs output that is constrained by a grammar, which this "
            "version does not have. Parse the answer yourself, or ask for it in your prompt."
        )

    def bind_documents(self, documents: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """The same model with these documents in every prompt, instead of its own."""
        return self.bind(documents=as_documents(documents))

    # -- looking ahead ---------------------------------------------------------------------------

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

    # -- what core asks --------------------------------------------------------------------------

    @property
    def _llm_type(self) -> str:
        return "agentkv-chat"

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return False

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {
            **self._sampling_identity(),
            "layout": self.layout,
            "documents": _digest(self.documents),
        }

    def _get_invocation_params(
        self, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        if kwargs.get("documents") is not None:
            kwargs["documents"] = _digest(as_documents(kwargs["documents"]))
        return super()._get_invocation_params(stop=stop, **kwargs)

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        params = self._get_invocation_params(stop=stop, **kwargs)
        return str(sorted(params.items()))

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = usage.PROVIDER
        return params

    def _resolve_model_profile(self) -> ModelProfile | None:
        local = self.engine_kind == "inproc"
        return local_profile(self.engine, self.model, self.engine_options) if local else None


def _digest(documents: Sequence[Document]) -> list[str]:
    """Stands for documents in traces and keys: their ids and hashes, none of their text."""
    return [f"{content_hash(d.id)[:8]}:{d.content_hash}:{d.stability}" for d in documents]
