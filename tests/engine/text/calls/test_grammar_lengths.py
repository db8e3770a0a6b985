"""However few tokens there are: a call in any format is whole, or refused with the least number."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.run.grammar import CompiledGrammar, GrammarCompiler
from agentkv.engine.run.schema import vet_schema
from agentkv.engine.text.calls.lark import TextState, write_grammar
from agentkv.engine.text.calls.reader import AnswerReader
from agentkv.engine.text.detok import OutputText
from agentkv.engine.text.render import Renderer
from agentkv.engine.types import Grammar

from .conftest import KINDS, MakeRenderer

PRICE: dict[str, Any] = {
    "type": "object",
    "properties": {"kilograms": {"type": "number"}, "country": {"type": "string"}},
    "required": ["kilograms", "country"],
    "additionalProperties": False,
}
LONG: dict[str, Any] = {
    "type": "object",
    "properties": {f"field_{i}": {"type": "integer", "minimum": 10**6} for i in range(4)},
    "required": [f"field_{i}" for i in range(4)],
    "additionalProperties": False,
}


def draw(
    renderer: Renderer, compiled: CompiledGrammar, max_new: int, seed: int
) -> tuple[list[int], bool]:
    """Tokens drawn at random, mostly printable ones, and whether they are whole."""
    rng, ends = np.random.default_rng(seed), renderer.tokenizer.eos_ids
    matcher = compiled.matcher(ends=ends, max_new=max_new)
    out: list[int] = []
    while not matcher.done and len(out) < max_new:
        ids = np.flatnonzero(matcher.allowed.numpy())
        taken = matcher.settle(int(rng.choice(ids)))
        assert matcher.error is None
        if taken is not None and taken not in ends:
            out.append(taken)
    return out, matcher.done


def least_of(compiled: CompiledGrammar, ends: frozenset[int]) -> int:
    with pytest.raises(InvalidRequest, match="max_tokens is 1, and") as caught:
        compiled.matcher(ends=ends, max_new=1)
    assert caught.value.param == "max_tokens"
    told = re.search(r"takes (\d+) tokens\. Set max_tokens to (\d+) or more", str(caught.value))
    assert told is not None and told[1] == told[2]
    return int(told[1])


def fewest(renderer: Renderer, text: str) -> int:
    """The fewest tokens that `text` (ASCII) can be cut into, added tokens standing for themselves."""
    tokenizer, total = renderer.tokenizer, 0
    added = tokenizer.added_tokens
    known = {
        tokenizer.decode([i], skip_special=False)
        for i in tokenizer.vocabulary().values()
        if i not in set(added.values())
    }
    for part in re.split("(" + "|".join(map(re.escape, added)) + ")", text):
        best = [0] + [10**6] * len(part)
        for j in range(1, len(part) + 1):
            best[j] = min(best[i] + 1 for i in range(j) if part[i:j] in known)
        total += 1 if part in added else best[-1]
    return total


def read(renderer: Renderer, ids: list[int], names: tuple[str, ...], speaks: bool) -> Any:
    reader = AnswerReader(renderer.script, renderer.tokenizer, names, speaks=speaks)
    output = OutputText(renderer.tokenizer)
    reader.feed("".join([*map(output.feed, ids), output.finish()]), ids)
    reader.finish()
    return reader.answer


@pytest.mark.parametrize("kind", KINDS)
def test_a_forced_call_is_whole_or_refused(kind: str, make: MakeRenderer) -> None:
    renderer = make(kind)
    ends, form = renderer.tokenizer.eos_ids, renderer.script.form
    calls = [
        ("long_one", vet_schema(LONG, param="tools")),
        ("price", vet_schema(PRICE, param="tools")),
    ]
    grammar = Grammar("lark", write_grammar(renderer.script, calls=calls, most=min(3, form.most)))
    compiled = GrammarCompiler(renderer.tokenizer).compile(grammar)
    least = least_of(compiled, ends)
    # Of both tools the one that takes fewer tokens, in as few as its text can be cut into.
    assert least == fewest(renderer, form.written("price", '{"kilograms": 0, "country": ""}'))
    for max_new in range(1, least):
        with pytest.raises(InvalidRequest, match=f"max_tokens to {least} or more"):
            compiled.matcher(ends=ends, max_new=max_new)
    for max_new in (*range(least, least + 25), 2 * least, 2 * least + 1, 400):
        ids, done = draw(renderer, compiled, max_new, seed=max_new)
        assert done and len(ids) <= max_new
        answer = read(renderer, ids, ("long_one", "price"), speaks=False)
        assert answer.text == "" and answer.tool_calls
        for call in answer.tool_calls:
            arguments = json.loads(call.arguments)
            assert list(arguments) == list((LONG if call.name == "long_one" else PRICE)["required"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_free_answer_never_begins_a_call_that_does_not_fit(kind: str, make: MakeRenderer) -> None:
    renderer = make(kind)
    ends = renderer.tokenizer.eos_ids
    calls = [("price", vet_schema(PRICE, param="tools"))]
    state: TextState = "free"
    text = write_grammar(renderer.script, calls=calls, most=2, text=state)
    compiled = GrammarCompiler(renderer.tokenizer).compile(Grammar("lark", text))
    opener = renderer.script.token(renderer.script.opener)
    called = 0
    for max_new in range(1, 160, 3):
        matcher = compiled.matcher(ends=ends, max_new=max_new)
        rng, out = np.random.default_rng(max_new), list[int]()
        while not matcher.done and len(out) < max_new:
            ids = np.flatnonzero(matcher.allowed.numpy())
            # The model is eager to call.
            eager = not out and opener is not None and matcher.allowed[opener]
            taken = matcher.settle(int(opener if eager and opener else rng.choice(ids)))
            assert matcher.error is None
            if taken is not None and taken not in ends:
                out.append(taken)
        answer = read(renderer, out, ("price",), speaks=True)
        for call in answer.tool_calls:
            assert list(json.loads(call.arguments)) == PRICE["required"]
        if opener is not None and opener in out:
            assert answer.tool_calls and matcher.done, max_new
            called += 1
    assert called > 10 or opener is None
