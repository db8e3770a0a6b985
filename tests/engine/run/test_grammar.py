"""Grammars: every output of every schema is whole and valid, however few tokens there are."""

from __future__ import annotations

import json
import math
import random
import re
import threading
import time
from pathlib import Path
from typing import Any

import llguidance
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.run import grammar_builder
from agentkv.engine.run.grammar import CompiledGrammar, GrammarCompiler
from agentkv.engine.run.grammar_cache import ByteLru
from agentkv.engine.run.schema import vet_schema
from agentkv.engine.text.tokenizer import Tokenizer
from agentkv.engine.types import Grammar

EOS = 2
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def compiler(tiny_llama_dir: Path) -> GrammarCompiler:
    return GrammarCompiler(Tokenizer.load(tiny_llama_dir))


@pytest.fixture(scope="module")
def large(smollm2_dir: Path) -> GrammarCompiler:
    """With a vocabulary of 49,152, and a model that has 100 rows more."""
    return GrammarCompiler(Tokenizer.load(smollm2_dir), vocab_size=49_252)


def words(compiler: GrammarCompiler) -> Tokenizer:
    tokenizer = compiler._tokenizer
    assert isinstance(tokenizer, Tokenizer)
    return tokenizer


def schema(value: Any) -> Grammar:
    return Grammar("json_schema", json.dumps(value))


def wander(
    compiler: GrammarCompiler, compiled: CompiledGrammar, max_new: int, seed: int, heat: float = 1.0
) -> tuple[str, bool]:
    """The text of a choice whose tokens are drawn at random, and whether it was complete.

    `heat`: how often a token is drawn from all that are allowed, rather than from printable ones."""
    rng = np.random.default_rng(seed)
    matcher = compiled.matcher(ends=frozenset({EOS}), max_new=max_new)
    out: list[int] = []
    while not matcher.done and len(out) < max_new:
        ids = np.flatnonzero(matcher.allowed.numpy())
        ids = ids[: max(1, int(len(ids) * heat))]
        taken = matcher.settle(int(rng.choice(ids)))
        assert matcher.error is None
        if taken is not None and taken != EOS:
            out.append(taken)
    return words(compiler).decode(out, skip_special=False), matcher.done


def shortest(compiled: CompiledGrammar) -> int:
    """The fewest tokens that are accepted at all."""
    for count in range(1, 400):
        try:
            compiled.matcher(ends=frozenset({EOS}), max_new=count)
        except InvalidRequest:
            continue
        return count
    raise AssertionError("no output of 400 tokens")


# -- a small checker, independent of the grammar engine


def conforms(value: Any, node: Any, root: Any) -> bool:
    if isinstance(node, bool):
        return node
    if "$ref" in node and not conforms(value, _at(root, node["$ref"]), root):
        return False
    if "enum" in node and not any(_same(value, v) for v in node["enum"]):
        return False
    if "const" in node and not _same(value, node["const"]):
        return False
    if "anyOf" in node and not any(conforms(value, part, root) for part in node["anyOf"]):
        return False
    if not all(conforms(value, part, root) for part in node.get("allOf", ())):
        return False
    kinds = node.get("type")
    if kinds is not None:
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not any(_is(value, kind) for kind in kinds):
            return False
    if isinstance(value, str):
        return (
            node.get("minLength", 0) <= len(value) <= node.get("maxLength", math.inf)
            and re.search(node.get("pattern", ""), value) is not None
        )
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return node.get("minimum", -math.inf) <= value <= node.get("maximum", math.inf)
    if isinstance(value, list):
        first = node.get("prefixItems", [])
        return node.get("minItems", 0) <= len(value) <= node.get("maxItems", math.inf) and all(
            conforms(item, first[i] if i < len(first) else node.get("items", True), root)
            for i, item in enumerate(value)
        )
    if isinstance(value, dict):
        known, extra = dict(node.get("properties", {})), node.get("additionalProperties", True)
        for pattern, part in node.get("patternProperties", {}).items():
            known |= {name: part for name in value if re.search(pattern, name)}
        listed = [name for name in known if name in value]
        return (
            all(name in value for name in node.get("required", ()))
            and all(conforms(v, known.get(k, extra), root) for k, v in value.items())
            and [name for name in value if name in known] == listed
        )
    return True


def _at(root: Any, ref: str) -> Any:
    for part in ref.split("/")[1:]:
        root = root[part]
    return root


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _is(value: Any, kind: str) -> bool:
    if kind in ("integer", "number"):
        good = isinstance(value, int if kind == "integer" else (int, float))
        return good and not isinstance(value, bool) and math.isfinite(value)
    types = {"null": type(None), "boolean": bool, "string": str, "array": list, "object": dict}
    return isinstance(value, types[kind])


# -- random schemas

NAMES = st.sampled_from(["a", "b", "name", "naïve", "x y", 'q"t', "日本"])
LEAVES = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    st.just({"type": "integer"}),
    st.just({"type": "number"}),
    st.just({"type": "string"}),
    st.builds(lambda a, b: {"type": "string", "minLength": a, "maxLength": a + b},
              st.integers(0, 5), st.integers(0, 9)),
    st.builds(lambda a, b: {"type": "integer", "minimum": a, "maximum": a + b},
              st.integers(-50, 2000), st.integers(0, 300)),
    st.sampled_from([{"type": "string", "pattern": p} for p in
                     (r"^[a-c]{2,4}$", r"^\d{3}-\d{2}$", "^(yes|no|maybe)$", r"^[A-Z]\w*!$")]),
    st.just({"type": ["string", "null"], "maxLength": 4}),
    st.builds(lambda v: {"enum": v}, st.lists(
        st.one_of(st.integers(-9, 99), st.text(max_size=6), st.booleans(), st.none()),
        min_size=1, max_size=6)),
    st.builds(lambda v: {"const": v}, st.sampled_from(
        ["é😀\n", 0, -1.5, None, [1, {"a": "b"}], {}, "", True])),
    st.just({"$ref": "#/$defs/tree"}),
    st.just({}),
)  # fmt: skip


def _object(parts: list[tuple[str, Any, bool]], extra: Any) -> dict[str, Any]:
    known = {name: node for name, node, _ in parts}
    return {
        "type": "object",
        "properties": known,
        "required": [n for n in known if any(name == n and must for name, _, must in parts)],
        "additionalProperties": extra,
    }


def _array(node: Any, low: int, more: int | None) -> dict[str, Any]:
    out = {"type": "array", "items": node, "minItems": low}
    return out if more is None else {**out, "maxItems": low + more}


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(_object, st.lists(st.tuples(NAMES, inner, st.booleans()), max_size=4),
                  st.one_of(st.just(False), st.just(True), inner)),
        st.builds(_array, inner, st.integers(0, 2), st.one_of(st.none(), st.integers(0, 2))),
        st.builds(lambda parts: {"type": "array", "prefixItems": parts, "minItems": len(parts),
                                 "items": False}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)  # fmt: skip
TREE = {
    "type": "object",
    "properties": {
        "v": {"type": "string", "maxLength": 8},
        "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
    },
    "required": ["v", "kids"],
    "additionalProperties": False,
}


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(node=SCHEMAS, seed=st.integers(0, 2**32 - 1))
def test_every_output_of_every_schema_is_whole_and_valid(
    compiler: GrammarCompiler, node: dict[str, Any], seed: int
) -> None:
    root = {**node, "$defs": {"tree": TREE}}
    compiled = compiler.compile(schema(root))
    assert compiled.enough is not None
    shortest(compiled)  # looks for a shorter way
    least = compiled.enough
    for max_new in (least, least + 1, least + 5, 2 * least + 20, 150):
        text, done = wander(compiler, compiled, max_new, seed)
        value = json.loads(text)
        assert conforms(value, root, root), text
        # Only a bare number may still be going on when its tokens are up.
        assert done or isinstance(value, (int, float)), text
        assert "\n" not in text


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(node=SCHEMAS, seed=st.integers(0, 2**32 - 1), heat=st.sampled_from([0.1, 0.4, 1.0]))
def test_no_number_of_tokens_cuts_an_output_off(
    compiler: GrammarCompiler, node: dict[str, Any], seed: int, heat: float
) -> None:
    root = {**node, "$defs": {"tree": TREE}}
    least: int | None = None
    for max_new in (*range(1, 61, 1 + seed % 3), 90, 200):
        compiled = compiler.compile(schema(root))
        try:
            text, done = wander(compiler, compiled, max_new, seed, heat)
        except InvalidRequest as error:
            told = re.search(r"takes (\d+) tokens", str(error))
            assert told is not None and least in (None, int(told[1]))
            least = int(told[1])
            assert max_new < least
            continue
        assert least is None or max_new >= least
        value = json.loads(text)
        assert conforms(value, root, root), (max_new, text)
        assert done or isinstance(value, (int, float)), (max_new, text)


@pytest.mark.parametrize(
    "node",
    [
        {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{90}$"}},
        {"type": "array", "items": {"type": "string", "pattern": "^(ab?c{3}){20,30}$"}},
        {"type": "array", "items": {"enum": ["\u65e5\u672c\U0001f600" * 12, "\u65e5" * 40]}},
        {"type": "array", "items": {"type": "integer", "minimum": 10**17}},
        {"type": "object", "patternProperties": {"^[a-z]{70}$": {"type": "null"}},
         "additionalProperties": False},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^x{80}$"},
         "b": {"type": "string", "minLength": 80}}, "additionalProperties": False},
    ],
)  # fmt: skip
def test_what_may_begin_costs_a_lot(compiler: GrammarCompiler, node: dict[str, Any]) -> None:
    """The shortest document is empty, and one value more takes nearly all tokens there are."""
    compiled = compiler.compile(schema(node))
    filled = 0
    for max_new in (*range(2, 300, 7), 600):
        text, done = wander(compiler, compiled, max_new, max_new, heat=0.6)
        value = json.loads(text)
        assert done and conforms(value, node, node), (max_new, text)
        filled += bool(value)
    assert filled


def test_expressions_that_count_are_whole_too(compiler: GrammarCompiler) -> None:
    for pattern in ("(<[a-z]{60}>)*", "(x([a-z]{3}-){20}!)*"):
        compiled = compiler.compile(Grammar("regex", pattern))
        rule = compiler.compile(Grammar("lark", f"start: PART\nPART: /{pattern}/\n"))
        for max_new in range(1, 220, 9):
            for one in (compiled, rule):
                text, _ = wander(compiler, one, max_new, max_new)
                assert re.fullmatch(pattern, text), (max_new, text)


def test_whole_at_the_last_token_is_done_unless_something_was_going_on(
    compiler: GrammarCompiler,
) -> None:
    def ended(grammar: Grammar, text: str) -> bool:
        ids = words(compiler).encode_text(text).tolist()
        matcher = compiler.compile(grammar).matcher(ends=frozenset({EOS}), max_new=len(ids))
        assert [matcher.settle(i) for i in ids] == ids
        return matcher.done

    calls = Grammar("lark", 'start: call ("\\n" call){0,3}\ncall: "<c>" /[0-9]/ "</c>"\n')
    assert ended(calls, "<c>1</c>") and ended(calls, "<c>1</c>\n<c>2</c>")
    assert ended(schema({"type": "array", "items": {"type": "integer"}}), "[1]")
    # A number or a text that might be longer was cut.
    assert not ended(schema({"type": "integer"}), "12")
    assert not ended(Grammar("lark", "start: /(?s:.*)/"), "so it is")
    assert not ended(Grammar("regex", "[a-z ]+"), "so it is")


def test_a_model_may_choose_where_the_tokens_are_just_enough(compiler: GrammarCompiler) -> None:
    node = {**PERSON, "properties": {"name": {"enum": ["a", "b"]}, "age": {"type": "integer"}}}
    compiled = compiler.compile(schema(node))
    seen = {wander(compiler, compiled, shortest(compiled), seed)[0] for seed in range(30)}
    values = [json.loads(text) for text in seen]
    assert {v["name"] for v in values} == {"a", "b"} and len({v["age"] for v in values}) > 3


@pytest.mark.parametrize("max_new", [19, 20, 25, 40, 120])
def test_a_real_vocabulary_closes_as_well(large: GrammarCompiler, max_new: int) -> None:
    node = {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "count": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "mode": {"enum": ["fast", "slow", "a very long way to say it, which takes tokens"]},
        },
        "required": ["path", "mode"],
    }
    compiled = large.compile(schema(node))
    for seed in range(6):
        text, done = wander(large, compiled, max_new, seed, heat=1.0 if seed % 2 else 0.3)
        assert done
        assert conforms(json.loads(text), node, node), text


def test_max_tokens_too_small_is_refused_with_numbers(compiler: GrammarCompiler) -> None:
    compiled = compiler.compile(schema({"enum": ["alpha", "bet"]}))
    with pytest.raises(InvalidRequest, match=r"max_tokens is 4, .* 5 tokens") as caught:
        compiled.matcher(ends=frozenset({EOS}), max_new=4)
    assert caught.value.param == "max_tokens"
    assert wander(compiler, compiled, 5, 0) == ('"bet"', True)
    # The first choice that comes to mind is a long one here; the short one is found in time.
    nested = {"anyOf": [{"enum": ["a" * 40]}, {**PERSON}, {"enum": ["zz" * 3]}, {"const": "yyyy"}]}
    compiled = compiler.compile(schema(nested))
    assert shortest(compiled) == 6
    assert wander(compiler, compiled, 6, 1) == ('"yyyy"', True)


def test_recursion_is_closed_in_time(compiler: GrammarCompiler) -> None:
    root = {"$ref": "#/$defs/tree", "$defs": {"tree": TREE}}
    compiled = compiler.compile(schema(root))
    for seed in range(12):
        text, done = wander(compiler, compiled, 200 + seed, seed)
        assert done and conforms(json.loads(text), root, root), text
    anything = compiler.compile(schema({"type": "array"}))
    for seed in range(12):
        text, done = wander(compiler, anything, 64, seed)
        assert done and isinstance(json.loads(text), list)


def test_ends_are_allowed_exactly_where_the_output_is_complete(compiler: GrammarCompiler) -> None:
    word = words(compiler).encode_text("7").tolist()[0]
    stop = words(compiler).encode_text("a").tolist()[0]
    matcher = compiler.compile(schema({"type": "integer"})).matcher(
        ends=frozenset({EOS, stop}), max_new=9
    )
    assert not matcher.allowed[EOS] and not matcher.allowed[stop] and matcher.allowed[word]
    assert matcher.settle(word) == word
    assert matcher.allowed[EOS] and matcher.allowed[stop] and not matcher.done
    assert matcher.settle(EOS) == EOS and matcher.done
    matcher = compiler.compile(schema({"type": "integer"})).matcher(ends=frozenset(), max_new=9)
    matcher.settle(word)
    assert not matcher.allowed[EOS]  # `ignore_eos`


def test_complete_needs_no_end_token(compiler: GrammarCompiler) -> None:
    matcher = compiler.compile(schema({"const": 5})).matcher(ends=frozenset({EOS}), max_new=9)
    (only,) = np.flatnonzero(matcher.allowed.numpy())
    assert matcher.settle(int(only)) == only
    assert matcher.done


def test_numbers_end(compiler: GrammarCompiler) -> None:
    """A model that only ever wants digits, in whole numbers, fractions and exponents."""
    for node, most in (({"type": "integer"}, 22), ({"type": "number"}, 47)):
        compiled = compiler.compile(schema({"type": "array", "items": node, "maxItems": 1}))
        matcher = compiled.matcher(ends=frozenset({EOS}), max_new=400)
        rng, text = random.Random(3), ""
        while not matcher.done:
            ids = np.flatnonzero(matcher.allowed.numpy()).tolist()
            pieces = {i: words(compiler).decode([i], skip_special=False) for i in ids}
            wanted = [i for i in ids if pieces[i].isdigit() and pieces[i] != "0"]
            fall_back = [i for i in ids if pieces[i] in ".e["]
            taken = matcher.settle(rng.choice(wanted or fall_back or ids))
            assert taken is not None
            text += words(compiler).decode([taken], skip_special=False)
        assert 0 < len(text) <= most, text
        assert all(math.isfinite(v) for v in json.loads(text))
    wide = compiler.compile(schema({"type": "string", "pattern": "^[0-9]{30}$"}))
    assert len(json.loads(wander(compiler, wide, 60, 0)[0])) == 30


def test_a_lark_grammar_with_a_schema_inside(compiler: GrammarCompiler) -> None:
    inner = json.dumps(vet_schema(PERSON, param="tools"))
    call = f'call: "<call>" args "</call>"\nargs: %json {inner}\n'
    compiled = compiler.compile(Grammar("lark", f"start: call\n{call}"))
    for max_new in (46, 60):
        text, done = wander(compiler, compiled, max_new, 5)
        assert done and text.startswith("<call>") and text.endswith("</call>")
        json.loads(text.removeprefix("<call>").removesuffix("</call>"))
    free = compiler.compile(Grammar("lark", f"start: TEXT | call\nTEXT: /[^<](.|\\n)*/\n{call}"))
    for seed in range(20):
        text, _ = wander(compiler, free, 30, seed)  # too few for a call: it is never begun
        assert text and not text.startswith("<")


def test_text_that_ends_with_a_mark(compiler: GrammarCompiler) -> None:
    rules = 'start: think "ok"\nthink[suffix="<end>"]: /(.|\\n)*/\n'
    compiled = compiler.compile(Grammar("lark", rules))
    for seed in range(8):
        text, done = wander(compiler, compiled, 25, seed)
        assert done and text.endswith("<end>ok")


def test_regular_expressions(compiler: GrammarCompiler) -> None:
    compiled = compiler.compile(Grammar("regex", r"[a-f]{3}-(north|south)"))
    for seed in range(5):
        text, done = wander(compiler, compiled, 9, seed)
        assert done and re.fullmatch(r"[a-f]{3}-(north|south)", text)


@pytest.mark.parametrize(
    ("grammar", "param"),
    [
        (Grammar("json_schema", "{"), "response_format"),
        (Grammar("json_schema", "[1]"), "response_format"),
        (Grammar("json_schema", "[" * 5000), "response_format"),
        (Grammar("lark", "start: missing"), "grammar"),
        (Grammar("lark", 'start: "a" %%'), "grammar"),
        (Grammar("lark", 'start: a\na[stop="x"]: /.*/'), "grammar"),
        (Grammar("lark", 'start: a\na[max_tokens=3]: /.*/'), "grammar"),
        (Grammar("regex", "("), "grammar"),
        (Grammar("regex", "a" * 20_000), "grammar"),
        (Grammar("json_schema", '{"type": "integer", "multipleOf": 1000000007}'), "response_format"),
    ],
)  # fmt: skip
def test_bad_grammars(compiler: GrammarCompiler, grammar: Grammar, param: str) -> None:
    began = time.perf_counter()
    with pytest.raises(InvalidRequest) as caught:
        compiler.compile(grammar)
    assert caught.value.param == param
    assert time.perf_counter() - began < 2


def test_grammar_checks_its_fields() -> None:
    wrongs: list[Any] = [("xml", "a"), ("regex", ""), ("regex", 3)]
    for wrong in wrongs:
        with pytest.raises(InvalidRequest):
            Grammar(*wrong)
    with pytest.raises(InvalidRequest):
        Grammar("regex", "a", opener=(-1, 0.0))
    with pytest.raises(InvalidRequest):
        Grammar("regex", "a", opener=(1, math.inf))


def test_compiled_grammars_are_remembered_within_bounds(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compiler.compile(schema(PERSON))
    assert compiler.compile(schema(PERSON)) is first
    assert compiler.compile(Grammar("json_schema", json.dumps(PERSON), opener=(1, 2.0))) is first
    monkeypatch.setattr(compiler, "_cache", ByteLru(300_000))
    for count in range(9):
        compiler.compile(schema({"const": count}))
    assert 0 < compiler._cache.used <= 300_000
    assert len(compiler._cache) == 4


def test_a_slow_grammar_is_given_up_and_holds_nobody(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    real = llguidance.LLMatcher

    class Slow:
        grammar_from_regex = staticmethod(real.grammar_from_regex)

        def __new__(cls, *args: Any, **options: Any) -> Any:
            gate.wait(20)
            return real(*args, **options)

    monkeypatch.setattr(llguidance, "LLMatcher", Slow)
    monkeypatch.setattr(
        "agentkv.engine.run.grammar.build", lambda work: grammar_builder.build(work, timeout=0.1)
    )
    try:
        with pytest.raises(InvalidRequest, match="longer than 5 s"):
            compiler.compile(Grammar("regex", "slow"))
        monkeypatch.undo()
        assert compiler.compile(Grammar("regex", "fast")) is not None  # the other builder
    finally:
        gate.set()


def test_many_threads_compile_and_match_at_once(tiny_llama_dir: Path) -> None:
    compiler = GrammarCompiler(Tokenizer.load(tiny_llama_dir))  # the table is not built yet
    found: list[str] = []
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for turn in range(4):
                node = {**PERSON, "title": f"{seed % 3} {turn}"}
                text, done = wander(compiler, compiler.compile(schema(node)), 70, seed)
                assert done and conforms(json.loads(text), PERSON, PERSON)
                found.append(text)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors
    assert len(found) == 32
    assert len(set(found)) == 8  # the same tokens give the same text, whoever else is at it


def test_a_model_with_more_rows_than_tokens(large: GrammarCompiler) -> None:
    matcher = large.compile(schema({"type": "string"})).matcher(ends=frozenset({EOS}), max_new=9)
    assert matcher.allowed.shape == (49_252,)
    assert not matcher.allowed[49_152:].any()


def test_masks_are_cheap(large: GrammarCompiler) -> None:
    """A token's share of the grammar stays far below a step of any model."""
    matcher = large.compile(schema({"type": "object"})).matcher(ends=frozenset({EOS}), max_new=400)
    rng = np.random.default_rng(1)
    took: list[float] = []
    while not matcher.done and len(took) < 300:
        ids = np.flatnonzero(matcher.allowed.numpy())
        began = time.perf_counter()
        matcher.settle(int(rng.choice(ids)))
        took.append(time.perf_counter() - began)
    assert float(np.median(took)) < 0.002
