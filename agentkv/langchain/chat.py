"""`ChatAgentKV`: a LangChain chat model that lays out its prompts and reports what they reused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.base import LangSmithParams, LanguageModelInput
from langchain_core.language_models.model_profile import ModelProfile
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable

from agentkv.client.base import ChatDelta, ChatReply
from agentkv.client.errors import InvalidCall
from agentkv.langchain import chunks, usage
from agentkv.langchain.ahead import Ahead
from agentkv.langchain.choice import as_choice, as_response_format, read_allowed
from agentkv.langchain.profile import local_profile, remote_profile
from agentkv.langchain.request import SESSIONS, Call, read_documents
from agentkv.langchain.settings import CONFIG
from agentkv.langchain.structured import Method, structured
from agentkv.langchain.tools import AnyTool, names_of, to_tools
from agentkv.prompt.document import Document
from agentkv.prompt.segment import content_hash

__all__ = ["SESSIONS", "ChatAgentKV"]


class ChatAgentKV(Ahead):
    """A chat model over the in-process engine or `agentkv serve`.

    `layout`: `static_first` (tools, instructions and documents ahead, what changes by the call at
    the end), `canonical` (nothing moves but tools keep one order and one JSON form), `off`, or
    `learn`. `documents`: texts that go into the prompt as such; a call's own `documents=` replaces
    them. `tool_auto_policy`: how a model that is free to call a tool comes to do so: `free` (it
    begins the call itself), `score` (the beginning of a call is weighed against text), or `auto`
    (what suits the model).

    Every answer has `usage_metadata` with `cache_read` and `cache_creation`, and
    `response_metadata["agentkv"]`: what was reused, segment by segment, and why the rest was not.

        llm = ChatAgentKV(documents=[Document("policy", text)])
        llm.invoke([SystemMessage([static("You are ..."), volatile(f"Now: {now}", name="clock")]),
                    HumanMessage("...")])
    """

    model_config = CONFIG

    # -- one call --------------------------------------------------------------------------------

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = self._prepare(messages, stop, run_manager, kwargs)
        try:
            reply = self._client(call.model).send(call.request)
        except InvalidCall as error:
            if not self._tail_refused(error, call):
                raise
            return self._generate(messages, stop, run_manager, **kwargs)
        return self._result(reply, call)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = self._prepare(messages, stop, run_manager, kwargs)
        try:
            reply = await self._client(call.model).asend(call.request)
        except InvalidCall as error:
            if not self._tail_refused(error, call):
                raise
            return await self._agenerate(messages, stop, run_manager, **kwargs)
        return self._result(reply, call)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call = self._prepare(messages, stop, run_manager, kwargs)
        made = chunks.Chunks()
        try:
            for delta in self._client(call.model).stream(call.request):
                for chunk in self._chunks(made, delta, call):
                    if run_manager is not None:
                        run_manager.on_llm_new_token(str(chunk.message.content), chunk=chunk)
                    yield chunk
        except InvalidCall as error:
            # A refused prompt is refused before the first token, so nothing was yielded yet.
            if not self._tail_refused(error, call):
                raise
            yield from self._stream(messages, stop, run_manager, **kwargs)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        call = self._prepare(messages, stop, run_manager, kwargs)
        made = chunks.Chunks()
        try:
            async for delta in self._client(call.model).astream(call.request):
                for chunk in self._chunks(made, delta, call):
                    if run_manager is not None:
                        text = str(chunk.message.content)
                        await run_manager.on_llm_new_token(text, chunk=chunk)
                    yield chunk
        except InvalidCall as error:
            if not self._tail_refused(error, call):
                raise
            async for chunk in self._astream(messages, stop, run_manager, **kwargs):
                yield chunk

    def _chunks(
        self, made: chunks.Chunks, delta: ChatDelta, call: Call
    ) -> Iterator[ChatGenerationChunk]:
        yield from made.feed(delta)
        if delta.reply is not None:
            yield made.last(delta.reply, *self._facts(delta.reply, call))

    def _facts(self, reply: ChatReply, call: Call) -> tuple[Any, dict[str, Any]]:
        """Usage and metadata of an answer, the same whether it was streamed or not."""
        report = reply.report.with_layout(call.arrangement)
        metadata = usage.metadata(reply, report, self.report, self.price)
        if cut := chunks.cut_calls(reply):
            metadata[chunks.CUT] = cut
        return usage.usage_metadata(report), metadata

    def _result(self, reply: ChatReply, call: Call) -> ChatResult:
        return chunks.result(reply, *self._facts(reply, call), usage.llm_output(reply))

    def _combine_llm_outputs(self, llm_outputs: list[dict[str, Any] | None]) -> dict[str, Any]:
        return usage.combined(llm_outputs)

    # -- tools, objects, documents ---------------------------------------------------------------

    def bind_tools(
        self,
        tools: Sequence[AnyTool],
        *,
        tool_choice: Any = None,
        strict: bool | None = None,
        parallel_tool_calls: bool | None = None,
        response_format: Any = None,
        allowed_tools: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Put tools into every prompt of the returned model.

        `tool_choice`: `auto`, `any` (or `required`, or True), `none`, a tool's name, or an object
        in OpenAI's or Anthropic's shape. `allowed_tools`: names that may be called. Neither changes
        the prompt, which has all the tools in any case: what may not be called is masked while the
        answer is sampled, so the prefix stays. `strict` is accepted and changes nothing: the grammar
        holds every call to its schema. `parallel_tool_calls=False`: at most one call.
        `response_format`: an answer that is no call is an object of this schema.

        Raises `InvalidCall` for what is no tool, and for names that are not among them.
        """
        definitions = to_tools(tools)
        allowed = read_allowed(allowed_tools)
        as_choice(tool_choice, names_of(definitions), allowed)  # fail here, not in the call
        given = {
            "tool_choice": tool_choice if tool_choice is not False else None,
            "strict": strict,
            "parallel_tool_calls": parallel_tool_calls,
            "response_format": as_response_format(response_format),
            "allowed_tools": allowed,
        }
        kwargs.update((name, value) for name, value in given.items() if value is not None)
        return self.bind(tools=definitions, **kwargs)

    def with_structured_output(
        self,
        schema: Any = None,
        *,
        method: Method = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        tools: Sequence[AnyTool] | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """A model whose answers are objects of `schema`: a pydantic class, a TypedDict, a JSON
        schema, or a tool definition.

        `json_schema`: the text of the answer is the object, and the prompt stays as it is.
        `function_calling`: the schema is a tool, which the model sees, and has to call.
        `json_mode`: any JSON object, or one of `schema`. With `tools` the model may call one of
        them instead; the parsed value is None then. `include_raw`: `{"raw", "parsed",
        "parsing_error"}`. Raises `StructuredOutputTruncated` when `max_tokens` cut the answer off.
        """
        return structured(
            self.bind,
            self.bind_tools,
            schema,
            method=method,
            include_raw=include_raw,
            strict=strict,
            tools=tools,
            **kwargs,
        )

    def bind_documents(self, documents: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """The same model with these documents in every prompt, instead of its own."""
        return self.bind(documents=read_documents(documents))

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
            "tool_auto_policy": self.tool_auto_policy,
            **self._layout_identity(),
            "documents": _digest(self.documents),
        }

    def _get_invocation_params(
        self, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        documents = kwargs.get("documents")
        if isinstance(documents, Iterator):
            # Read here, it would be empty when the call is laid out.
            wrong = InvalidCall("documents is an iterator, which can be read once: give a list.")
            wrong.param = "documents"
            raise wrong
        if documents is not None:
            kwargs["documents"] = _digest(read_documents(documents))
        return super()._get_invocation_params(stop=stop, **kwargs)

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        params = self._get_invocation_params(stop=stop, **kwargs)
        return str(sorted(params.items()))

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop or self.stop, **kwargs)
        params["ls_provider"] = usage.PROVIDER
        return params

    def _resolve_model_profile(self) -> ModelProfile | None:
        if self.engine_kind == "http":
            return remote_profile()
        return local_profile(self.engine, self.model, self.engine_options)

    @classmethod
    def from_server(cls, base_url: str, **settings: Any) -> Self:
        """The model behind a server, with its context window in `profile` (which middlewares that
        summarize by a fraction of it need). Asks the server; the constructor never does."""
        made = cls(base_url=base_url, **settings)
        made.profile = remote_profile(made._client().context_window())
        return made

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **changes: Any) -> Self:
        """A model from what `asdict()` of another said. Texts and keys are not in there: give
        `documents`, `api_key` and `cache_salt` anew, where there were any."""
        secret = ("documents", "cache_salt", "drop_lines", "move_lines", "extra_body")
        lost = [name for name in secret if config.get(name) and name not in changes]
        if lost:
            raise InvalidCall(f"a configuration holds digests of {' and '.join(lost)}: give them.")
        names = set(cls.model_fields) - set(secret)
        known = {name: value for name, value in config.items() if name in names}
        return cls(**{**known, **changes})


def _digest(documents: Sequence[Document]) -> list[str]:
    """Stands for documents in traces and keys: their ids and hashes, none of their text."""
    return [f"{content_hash(d.id)[:8]}:{d.content_hash}:{d.stability}" for d in documents]
