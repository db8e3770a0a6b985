"""Which format a template speaks, and the grammar that follows from it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import llguidance
import pytest

from agentkv.engine.run.schema import vet_schema
from agentkv.engine.text.calls.formats import NO_CALLS, format_of, thinks
from agentkv.engine.text.calls.lark import TextState, ThoughtState, write_grammar
from agentkv.engine.text.render import Renderer
from agentkv.engine.text.template import ChatTemplate

from ..conftest import PLAIN_CHATML, TEMPLATE_FILES
from .conftest import KINDS, LLAMA3, MakeRenderer

NAMES = {
    "smollm2": "smollm2",
    "qwen": "hermes",
    "qwen3": "hermes",
    "llama3": "llama3",
    "mistral": "mistral",
    "mistral-args": "mistral-args",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_says_its_format(kind: str, make: MakeRenderer) -> None:
    renderer = make(kind)
    form = renderer.script.form
    assert form.name == NAMES[kind]
    assert form.policy == ("score" if kind == "smollm2" else "free")
    assert renderer.thinks == (kind == "qwen3")


def test_other_templates_have_none(traces: Path) -> None:
    for name in ("deepseek", "phi"):
        source = (traces / "chat_templates" / TEMPLATE_FILES[name]).read_text("utf-8")
        template = ChatTemplate(source, named_tokens={"bos_token": "", "eos_token": ""})
        assert format_of(template) is NO_CALLS
        assert thinks(template) == (name == "deepseek")
    assert format_of(ChatTemplate(PLAIN_CHATML)) is NO_CALLS
    # Known by what it writes, not by what it speaks of.
    spoken = PLAIN_CHATML + "{# <tool_call> [TOOL_CALLS] <|python_tag|> #}"
    assert format_of(ChatTemplate(spoken)) is NO_CALLS


def test_the_template_for_tools_is_the_one_that_counts() -> None:
    tool_source = LLAMA3
    template = ChatTemplate(
        PLAIN_CHATML, tool_source=tool_source, named_tokens={"bos_token": "<|begin_of_text|>"}
    )
    assert format_of(template).name == "llama3"
    call = {"id": "x", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    text = template.render(
        [
            {"role": "user", "content": "a"},
            {**said, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
        ]
    )
    assert '{"name": "f", "parameters": {}}' in text


def test_what_was_measured_lies_beside_the_template(make: MakeRenderer) -> None:
    form = make("smollm2").script.form
    folder = Path(__file__).parents[4] / "engine" / "model" / "templates"
    data = json.loads((folder / "smollm2_tools.json").read_text("utf-8"))
    bias = data["opener_bias"]
    asked = {"role": "user", "content": "a"}
    called = {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}
    result = {"role": "tool", "content": "b"}
    assert form.bias.of([asked]) == bias["first"]
    assert form.bias.of([asked, called, result]) == bias["after_tool"]
    # The layout's block of what changes may stand behind the result.
    mark = {"name": "clock", "kind": "context", "stability": "call"}
    block = {"role": "user", "content": [{"type": "text", "text": "12:03", "agentkv": mark}]}
    assert form.bias.of([asked, called, result, block]) == bias["after_tool"]
    assert form.bias.of([asked, called, block]) == bias["later"]
    assert form.bias.of([asked, called, result, asked]) == bias["later"]
    assert form.parallel == data["parallel_calls"]
    assert make("smollm2").script.opener_id == make("smollm2").tokenizer.encode_text("<")[0]


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "s": {"$ref": "#/$defs/S"}},
    "required": ["a", "s"],
    "additionalProperties": False,
    "$defs": {"S": {"type": "string", "maxLength": 40}},
}
DOCUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "b": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}


class Judge:
    """Says whether an answer is in a grammar, its added tokens being those tokens."""

    def __init__(self, renderer: Renderer) -> None:
        self.tokenizer = renderer.tokenizer
        self.table = llguidance.LLTokenizer(
            self.tokenizer.to_json(), eos_token=sorted(self.tokenizer.eos_ids)
        )

    def accepts(self, grammar: str, text: str) -> bool:
        matcher = llguidance.LLMatcher(self.table, llguidance.LLMatcher.grammar_from_lark(grammar))
        assert not matcher.is_error(), matcher.get_error()
        ids: list[int] = []
        pattern = "|".join(map(re.escape, self.tokenizer.added_tokens))
        for piece in re.split(f"({pattern})", text):
            added = self.tokenizer.added_tokens.get(piece)
            ids += self.tokenizer.encode_text(piece).tolist() if added is None else [added]
        taken: int = matcher.try_consume_tokens(ids)
        return taken == len(ids) and bool(matcher.is_accepting())


@pytest.mark.parametrize("kind", KINDS)
def test_the_grammar_of_an_answer(kind: str, make: MakeRenderer) -> None:
    """Every choice, with and without thoughts and documents: what is in, and what is not."""
    renderer = make(kind)
    script, judge = renderer.script, Judge(renderer)
    form = script.form
    names = ("get_x", 'b/"é') if form.quoted else ("get_x", "b-2")
    calls = [(name, vet_schema(SCHEMA, param="tools")) for name in names]
    document = vet_schema(DOCUMENT, param="response_format")
    good = form.written(names[1], '{"a": 12, "s": "x]}</too"}')
    wrong = [
        form.written("other", '{"a": 12, "s": "x"}'),
        form.written("get_x", '{"a": 12}'),
        form.written("get_x", '{"a": "12", "s": "x"}'),
        good[:-1],
        good + "x",
        good.replace(" ", "  ", 1),
    ]
    many = form.gap.join([good] * 4)
    if form.sep is not None:
        inner = good[len(form.opener + form.open) : len(good) - len(form.close)]
        many = form.opener + form.open + form.sep.join([inner] * 4) + form.close
    most = min(4, form.most)
    for thought in get_args(ThoughtState):
        before = {
            "never": "",
            "maybe": "<think>\nhm {a}\n</think>\n\n",
            "open": "hm\n</think>\n\n",
        }[thought]
        for text in get_args(TextState):
            for schema in (None, document) if text != "none" else (None,):
                grammar = write_grammar(
                    script, calls=calls, most=most, text=text, document=schema, thought=thought
                )

                def accepts(answer: str, grammar: str = grammar, before: str = before) -> bool:
                    return judge.accepts(grammar, before + answer)

                assert accepts(good)
                if thought == "maybe":
                    assert judge.accepts(grammar, good)
                spoken = text != "none" and schema is None
                assert accepts("Hello {x} <b>\n") == spoken
                assert accepts("") == spoken
                for answer in wrong:
                    text_too = spoken and form.at_start and not answer.startswith(form.opener)
                    assert accepts(answer) == text_too, answer
                assert accepts(f"I look.\n{good}") == (spoken and (form.at_start or text == "free"))
                assert accepts('{"name": "x", "b": 1}') == (schema is not None) or spoken
                assert accepts('{"b": 1}') == (spoken and schema is None)
                if most == 4:
                    assert accepts(many)
                    one = write_grammar(script, calls=calls, most=1, text=text, thought=thought)
                    assert not judge.accepts(one, before + many)
                    assert judge.accepts(one, before + good)


def test_a_document_alone_behind_a_thought(make: MakeRenderer) -> None:
    renderer = make("qwen3")
    document = vet_schema(DOCUMENT, param="response_format")
    grammar = write_grammar(renderer.script, document=document, thought="maybe")
    judge = Judge(renderer)
    for answer in (
        '{"name": "x"}',
        '<think>\nhm\n</think>\n\n{"name": "x"}',
        '<think></think>{"name": "x"}',
    ):
        assert judge.accepts(grammar, answer)
    for answer in ("x", "<think>\nhm\n</think>\n\nx", "<think>hm"):
        assert not judge.accepts(grammar, answer)
