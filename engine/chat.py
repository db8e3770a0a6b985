"""A chat request made ready: prompt, grammar, and how its answers are read.

Every way into the engine (in process, HTTP) goes through here, so that a tool call is constrained,
read and fed back in one way. Nothing here changes the prompt: tools that may not be called now stay
in it, and the grammar leaves them out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.run.grammar_cache import ByteLru
from agentkv.engine.run.schema import vet_schema
from agentkv.engine.text.calls.answer import Answer
from agentkv.engine.text.calls.choice import ToolChoice, read_choice
from agentkv.engine.text.calls.closed import close_objects
from agentkv.engine.text.calls.formats import NO_CALLS, THINK, UNTHINK
from agentkv.engine.text.calls.lark import TextState, ThoughtState, write_grammar
from agentkv.engine.text.calls.reader import AnswerReader
from agentkv.engine.text.calls.script import Script
from agentkv.engine.text.canonical import canonical_json, canonical_tools, plain
from agentkv.engine.text.detok import OutputText
from agentkv.engine.text.render import Renderer
from agentkv.engine.types import Grammar, RenderedPrompt, SamplingParams

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine

Policy = Literal["free", "score"]
_POLICIES: dict[str, Policy] = {"free": "free", "score": "score"}
KEPT_BYTES = 16 << 20
_lock = threading.Lock()
_kept: WeakKeyDictionary[Script, ByteLru[str]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A chat request made ready: give `prompt` and `params` to the engine, read each choice with a
    `reader`, and hand it to `remember` when it is done.

    `choice`: what may be called. `policy`: how the model chooses between text and a call; None
    where it has no choice.
    """

    prompt: RenderedPrompt
    params: SamplingParams
    choice: ToolChoice
    policy: Policy | None
    renderer: Renderer
    namespace: str
    document: bool
    thought: ThoughtState

    def reader(self, index: int = 0) -> AnswerReader:
        """A fresh reader for the answer of choice `index`; each choice needs its own."""
        if not 0 <= index < self.params.n:
            raise IndexError(f"choice {index} of a request for {self.params.n}")
        return AnswerReader(
            self.renderer.script,
            self.renderer.tokenizer,
            self.choice.names if self.choice.mode != "none" else (),
            speaks=self.choice.mode == "auto",
            alike=self.document,
            thinks=self.thought == "maybe",
            thinking=self.thought == "open",
        )

    def read(self, text: str, token_ids: Sequence[int], index: int = 0) -> Answer:
        """The answer in the whole text of choice `index`."""
        reader = self.reader(index)
        reader.feed(text, token_ids)
        reader.finish()
        return reader.answer

    def finish_reason(self, reason: str, answer: Answer) -> str:
        """`tool_calls` where the answer ended by itself and calls tools; else `reason`."""
        return "tool_calls" if reason == "stop" and answer.tool_calls else reason

    def remember(self, answer: Answer, token_ids: Sequence[int], finish_reason: str) -> None:
        """Take note of a finished choice, so that its tool calls are fed back as they were sampled.

        An answer that is not all of what was sampled (a stop string cut it) is not kept.
        """
        if not answer.tool_calls or finish_reason == "abort":
            return
        ends = self.renderer.tokenizer.eos_ids
        output = OutputText(self.renderer.tokenizer)
        ids = list(token_ids[:-1] if token_ids and token_ids[-1] in ends else token_ids)
        text = "".join([*map(output.feed, ids), output.finish()])
        if _said(self.read(text, ids)) == _said(answer):
            self.renderer.remember_calls(self.prompt, answer, token_ids, namespace=self.namespace)


def prepare(
    engine: Engine,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    params: SamplingParams,
    tool_choice: str | Mapping[str, Any] | None = None,
    parallel_tool_calls: bool | None = None,
    response_format: Mapping[str, Any] | None = None,
    auto_policy: str = "auto",
    salt: str | None = None,
    **render_options: Any,
) -> Chat:
    """Render the prompt, and make the grammar that `tool_choice` and `response_format` ask for.

    Blocks while it renders and compiles: call it in a thread from async code. `tool_choice`,
    `parallel_tool_calls` and `response_format` are OpenAI's. `auto_policy`: `free` (the model's own
    opener begins a call), `score` (the first token decides), or `auto`, which is what suits the
    model's format. `render_options` and `salt` go to `Engine.render`.

    Raises `InvalidRequest` naming the parameter.
    """
    listed = canonical_tools(tools) if tools else []
    names = [tool["function"]["name"] for tool in listed]
    choice = read_choice(tool_choice, names)
    if parallel_tool_calls is not None and not isinstance(parallel_tool_calls, bool):
        raise InvalidRequest(
            "parallel_tool_calls must be true or false.", param="parallel_tool_calls"
        )
    if auto_policy != "auto" and auto_policy not in _POLICIES:
        raise InvalidRequest(
            f"auto_policy must be auto, free or score, got {auto_policy!r:.80}.",
            param="auto_policy",
        )
    schema = read_format(response_format)
    prompt = engine.render(messages, tools, salt=salt, **render_options)
    renderer = engine.renderer
    script = renderer.script
    if choice.mode != "none" and script.form is NO_CALLS:
        raise InvalidRequest(
            "This model's chat template writes tool calls in a way that cannot be read back "
            "(known are the ways of Llama 3, Mistral, Qwen and Hermes). Use tool_choice 'none'.",
            param="tool_choice",
        )
    thought = _thought(prompt, renderer, bool(render_options.get("continue_final_message")))
    grammar: Grammar | None = None
    policy: Policy | None = None
    if choice.mode != "none":
        form = script.form
        if choice.mode == "auto":
            policy = _POLICIES.get(auto_policy, form.policy)
        most = form.parallel if parallel_tool_calls is None else form.most
        text = _call_grammar(
            script,
            canonical_json([tool for tool in listed if tool["function"]["name"] in choice.names]),
            1 if parallel_tool_calls is False else most,
            policy or "none",
            canonical_json(schema) if schema is not None and choice.mode == "auto" else None,
            thought,
        )
        opener = None
        if policy == "score":
            opener = (script.opener_id, form.bias.of(messages))
        grammar = Grammar("lark", text, opener)
    elif schema is not None:
        grammar = _document_grammar(script, canonical_json(schema), thought)
    elif listed and script.form.policy == "score" and params.grammar is None:
        # Told not to call, such a model would write its call as text.
        grammar = Grammar("lark", _call_grammar(script, "[]", 0, "score", None, thought))
    if grammar is not None:
        if params.grammar is not None:
            raise InvalidRequest(
                "Give either a grammar, or tools or a response_format.", param="response_format"
            )
        engine.compile(grammar)
        params = replace(params, grammar=grammar)
    return Chat(
        prompt=prompt,
        params=params,
        choice=choice,
        policy=policy,
        renderer=renderer,
        namespace=salt or "",
        document=schema is not None and choice.mode == "auto",
        thought=thought,
    )


def read_format(response_format: Any) -> Mapping[str, Any] | None:
    """The JSON schema that an answer must have; None for plain text. Objects have only the members
    that they declare (see `close_objects`).

    Raises `InvalidRequest(param="response_format")` for anything but OpenAI's three shapes.
    """
    if response_format is None:
        return None
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind == "json_schema":
        inner = response_format.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, Mapping) else None
        if not isinstance(schema, Mapping):
            raise InvalidRequest(
                "response_format.json_schema.schema must be a JSON schema (an object).",
                param="response_format",
            )
        return close_objects(plain(schema, param="response_format"))
    raise InvalidRequest(
        f"response_format must be of type text, json_object or json_schema, got {kind!r:.80}.",
        param="response_format",
    )


def _call_grammar(
    script: Script,
    tools: str,
    most: int,
    text: TextState,
    schema: str | None,
    thought: ThoughtState,
) -> str:
    """Grammar text for answers with calls; kept, since the same tools come again with every turn."""
    with _lock:
        kept = _kept.setdefault(script, ByteLru(KEPT_BYTES))
    key = (tools, most, text, schema, thought)
    found = kept.get(key)
    if found is not None:
        return found
    calls = []
    for tool in json.loads(tools):
        function = tool["function"]
        try:
            vetted = vet_schema(close_objects(function["parameters"]), param="tools")
        except InvalidRequest as error:
            raise InvalidRequest(
                f"The parameters of tool {function['name']!r} cannot be kept to: {error}",
                param="tools",
            ) from error
        calls.append((function["name"], vetted))
    document = None if schema is None else _vetted(json.loads(schema))
    grammar = write_grammar(
        script, calls=calls, most=most, text=text, document=document, thought=thought
    )
    kept.put(key, grammar, 4 * (len(tools) + len(schema or "") + len(grammar)))
    return grammar


def _document_grammar(script: Script, schema: str, thought: ThoughtState) -> Grammar:
    if thought == "never":
        return Grammar("json_schema", schema)
    document = _vetted(json.loads(schema))
    return Grammar("lark", write_grammar(script, document=document, thought=thought))


def _vetted(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return vet_schema(schema, param="response_format")


def _thought(prompt: RenderedPrompt, renderer: Renderer, continued: bool) -> ThoughtState:
    """Whether an answer to this prompt may begin with a thought, or is inside one."""
    if not renderer.thinks:
        return "never"
    said = prompt.text[-4000:]
    opened = said.rfind(THINK)
    if opened >= 0 and UNTHINK not in said[opened:]:
        behind = said[opened + len(THINK) :]
        if continued or not behind.strip():
            return "open"
    if continued or said.rstrip().endswith(UNTHINK):
        return "never"
    return "maybe"


def _said(answer: Answer) -> tuple[str, str, list[tuple[str, str]]]:
    calls = [(call.name, call.arguments) for call in answer.tool_calls]
    return answer.text, answer.reasoning, calls
