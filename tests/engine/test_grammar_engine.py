"""Constrained calls on the engine: with everything else that a call can ask for."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from agentkv.engine import Engine
from agentkv.engine.chat import prepare
from agentkv.engine.errors import EngineError, InvalidRequest
from agentkv.engine.run.grammar_matcher import Matcher
from agentkv.engine.types import Grammar, RequestOutput, SamplingParams

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
PROMPT = list(range(10, 74))


def grammar(node: Any, opener: tuple[int, float] | None = None) -> Grammar:
    return Grammar("json_schema", json.dumps(node), opener)


def params(node: Any = PERSON, **settings: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 48, "grammar": grammar(node), **settings})


def person(text: str) -> dict[str, Any]:
    value = json.loads(text)
    assert list(value) == ["name", "age"]
    assert isinstance(value["name"], str) and isinstance(value["age"], int)
    return dict(value)


def test_greedy_and_sampled_calls_close_at_every_length(shared: Engine) -> None:
    for max_tokens in (22, 23, 27, 40):
        for temperature in (0.0, 1.0):
            out = shared.generate(
                PROMPT, params(max_tokens=max_tokens, temperature=temperature, seed=max_tokens)
            )
            person(out.text)
            assert out.finish_reason == "stop"
            assert len(out.token_ids) <= max_tokens
    with pytest.raises(InvalidRequest, match="max_tokens is 5") as caught:
        shared.generate(PROMPT, params(max_tokens=5))
    assert caught.value.param == "max_tokens"
    assert shared.generate(PROMPT, params(max_tokens=0)).text == ""  # prefill only


PRICE = {
    "type": "object",
    "properties": {"kilograms": {"type": "number"}, "country": {"type": "string"}},
    "required": ["kilograms", "country"],
}


def call_price(engine: Engine, max_tokens: int, temperature: float = 0.0) -> tuple[Any, str]:
    """The arguments of a forced call, and its finish reason."""
    chat = prepare(
        engine,
        [{"role": "user", "content": "What does it cost to send 3 kilograms to Norway?"}],
        [{"type": "function", "function": {"name": "price", "parameters": PRICE}}],
        params=SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=max_tokens),
        tool_choice={"type": "function", "function": {"name": "price"}},
    )
    (choice,) = engine.generate(chat.prompt, chat.params).choices
    answer = chat.read(choice.text, choice.token_ids)
    assert answer.text == "" and len(choice.token_ids) <= max_tokens
    (one,) = answer.tool_calls
    return json.loads(one.arguments), chat.finish_reason(choice.finish_reason, answer)


@pytest.mark.slow
def test_a_forced_call_is_whole_or_refused_at_every_length(engine: Engine) -> None:
    """The embedded model writes `</tool_call>` in five tokens, which have to fit, too."""
    least = 33
    for max_tokens in (1, 10, 23, 24, 28, 30, least - 1):
        with pytest.raises(InvalidRequest, match=f"max_tokens to {least} or more") as caught:
            call_price(engine, max_tokens)
        assert caught.value.param == "max_tokens"
    for max_tokens in (33, 34, 36, 37, 60):
        arguments, reason = call_price(engine, max_tokens)
        assert list(arguments) == ["kilograms", "country"] and reason == "tool_calls"
        assert arguments["kilograms"] == 3  # what the model says, though it has no token to spare
    assert arguments["country"] == "Norway"


@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_any_length_with_a_small_vocabulary(shared: Engine, temperature: float) -> None:
    refused = 0
    for max_tokens in (60, *range(70, 110, 3)):
        try:
            arguments, reason = call_price(shared, max_tokens, temperature)
        except InvalidRequest as error:
            assert f"max_tokens is {max_tokens}, and" in str(error)
            refused += 1
            continue
        assert list(arguments) == ["kilograms", "country"] and reason == "tool_calls"
    assert 1 < refused < 14


@pytest.mark.slow
def test_a_document_is_whole_or_refused_at_every_length(engine: Engine) -> None:
    least = None
    for max_tokens in (*range(1, 15), 17, 21, 60):
        try:
            out = engine.generate("Ann, who is 41,", params(max_tokens=max_tokens, temperature=0.0))
        except InvalidRequest as error:
            told = re.search(r"response_format allows takes (\d+) tokens", str(error))
            assert told is not None and max_tokens < int(told[1])
            least = int(told[1])
            continue
        assert least is not None and max_tokens >= least
        person(out.text)
        assert out.finish_reason == "stop"


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_one_enum_never_loops_in_white_space(shared: Engine, temperature: float) -> None:
    """B044: a schema with one enum string and an ambiguous text, 50 runs, cold and warm."""
    node = {
        "type": "object",
        "properties": {"label": {"type": "string", "enum": ["positive", "negative"]}},
        "required": ["label"],
        "additionalProperties": False,
    }
    text, seen = "well, it is what it is", set()
    for run in range(5):
        shared.flush()
        settings = [
            params(node, max_tokens=200, temperature=temperature, seed=10 * run + i)
            for i in range(10)
        ]
        cold = shared.generate(text, settings[0])
        assert cold.cache.cached_tokens == 0
        streams = [shared.stream(text, one) for one in settings[1:]]
        warm = [stream.result(60) for stream in streams]
        assert all(out.cache.cached_tokens > 0 for out in warm)
        for out in (cold, *warm):
            assert out.finish_reason == "stop"
            assert out.text in ('{"label": "positive"}', '{"label": "negative"}')
            seen.add(out.text)
    assert temperature < 1 or len(seen) == 2


def test_the_embedded_model_gives_the_enum_too(engine: Engine) -> None:
    node = {
        "type": "object",
        "properties": {"label": {"enum": ["yes", "no"]}},
        "required": ["label"],
        "additionalProperties": False,
    }
    out = engine.generate("Is it?", params(node, max_tokens=40, n=2, temperature=1.0, seed=1))
    for choice in out.choices:
        assert json.loads(choice.text)["label"] in ("yes", "no")
        assert choice.finish_reason == "stop"


@pytest.mark.parametrize("page_size", [1, 16])
def test_cold_warm_alone_and_in_a_batch_are_the_same(
    make_engine: Callable[..., Engine], page_size: int
) -> None:
    engine = make_engine(page_size=page_size)
    assert engine.bit_exact
    for temperature in (0.0, 1.0):
        settings = params(temperature=temperature, seed=5)
        engine.flush()
        cold = engine.generate(PROMPT, settings)
        warm = engine.generate(PROMPT, settings)
        assert cold.cache.cached_tokens == 0
        assert warm.cache.cached_tokens >= len(PROMPT) - page_size
        others = [
            engine.stream(PROMPT, params(temperature=1.0, seed=1)),
            engine.stream(PROMPT[:30], SamplingParams(max_tokens=30, temperature=0.0)),
            engine.stream(PROMPT[:9], params({"type": "array"}, seed=4)),
        ]
        batched = engine.generate(PROMPT, settings)
        free = [stream.result(20) for stream in others]
        assert cold.token_ids == warm.token_ids == batched.token_ids
        person(cold.text)
        alone = engine.generate(PROMPT[:30], SamplingParams(max_tokens=30, temperature=0.0))
        assert free[1].token_ids == alone.token_ids  # one that has no grammar


def test_choices_streams_and_async_calls(shared: Engine) -> None:
    out = shared.generate(PROMPT, params(n=4, temperature=1.0, seed=2))
    assert len({c.text for c in out.choices}) > 1
    for choice in out.choices:
        person(choice.text)
    pieces = ["", "", "", ""]
    with shared.stream(PROMPT, params(n=4, temperature=1.0, seed=2)) as stream:
        for event in stream:
            if event.index >= 0:
                pieces[event.index] += event.text
    assert pieces == [c.text for c in out.choices]

    async def work() -> list[RequestOutput]:
        await asyncio.to_thread(shared.compile, grammar(PERSON))
        return await asyncio.gather(
            *(shared.agenerate(PROMPT, params(temperature=1.0, seed=s)) for s in range(5))
        )

    for one in asyncio.run(work()):
        person(one.text)


def test_retraction_keeps_the_place_in_the_grammar(make_engine: Callable[..., Engine]) -> None:
    wide = make_engine(prefix_cache=False)
    node = {"type": "string", "minLength": 50, "maxLength": 55}
    calls = [
        ([i, *PROMPT[:20]], params(node, max_tokens=60, temperature=1.0, seed=i)) for i in range(5)
    ]
    alone = [wide.generate(p, s).token_ids for p, s in calls]
    engine = make_engine(pool_tokens=132)
    streams = [engine.stream(p, s) for p, s in calls]
    outs = [stream.result(60) for stream in streams]
    assert engine.stats()["retractions_total"] > 0
    assert [out.token_ids for out in outs] == alone
    for out in outs:
        assert 50 <= len(json.loads(out.text)) <= 55


def test_abort_in_any_state_leaves_nothing_behind(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine(max_running=2)
    settings = params({"type": "array", "items": {"type": "string"}, "minItems": 50},
                      max_tokens=1500, temperature=1.0)  # fmt: skip
    streams = [engine.stream(PROMPT, settings) for _ in range(4)]
    for stream in streams[:2]:
        stream.next(20)
    streams[0].next(20)
    for stream in streams:
        assert engine.abort(stream.request_id)
    for stream in streams:
        assert stream.result(20).finish_reason == "abort"
    engine.check()
    person(engine.generate(PROMPT, params()).text)


def test_stop_strings_cut_and_stop_ids_wait_for_the_end(shared: Engine) -> None:
    out = shared.generate(PROMPT, params(stop=('", "age"',), temperature=1.0, seed=3))
    assert out.finish_reason == "stop" and out.choices[0].stop_reason == '", "age"'
    assert out.text.startswith('{"name": "') and "age" not in out.text
    brace = shared.tokenizer.encode_text("}").tolist()[0]
    out = shared.generate(PROMPT, params(stop_token_ids=(brace,), temperature=1.0, seed=3))
    assert out.finish_reason == "stop"
    letter = shared.tokenizer.encode_text("a").tolist()[0]
    for seed in range(4):
        out = shared.generate(
            PROMPT,
            params({"type": "integer"}, stop_token_ids=(letter,), temperature=1.0, seed=seed),
        )
        assert isinstance(json.loads(out.text), int)


def test_min_tokens_bias_penalties_and_logprobs(shared: Engine) -> None:
    digits = {c: shared.tokenizer.encode_text(c).tolist()[0] for c in "0123456789"}
    settings = params(
        {"type": "integer"}, min_tokens=6, temperature=1.0, seed=1, logit_bias={digits["7"]: 100.0}
    )
    out = shared.generate(PROMPT, settings)
    assert len(out.token_ids) >= 6 and "777" in out.text
    assert abs(json.loads(out.text)) < 10**20  # digits are bounded, whatever the bias says
    # Complete before min_tokens: nothing more may come.
    assert shared.generate(PROMPT, params({"const": 5}, min_tokens=6)).text == "5"
    bias = dict.fromkeys(digits.values(), -100.0)
    out = shared.generate(PROMPT, params({"type": "integer"}, logit_bias=bias, temperature=0.0))
    assert isinstance(json.loads(out.text), int)
    out = shared.generate(
        PROMPT,
        params(repetition_penalty=5.0, presence_penalty=2.0, frequency_penalty=2.0, top_k=1,
               logprobs=3, prompt_logprobs=1, seed=2),
    )  # fmt: skip
    person(out.text)
    logprobs = out.choices[0].logprobs
    assert logprobs is not None and len(logprobs) == len(out.token_ids)
    assert [one.token_id for one in logprobs] == list(out.token_ids)
    assert all(math.isfinite(one.logprob) and len(one.top) == 3 for one in logprobs)
    for choose in ({"top_k": 3}, {"top_p": 0.2}, {"min_p": 0.3}):
        person(shared.generate(PROMPT, params(temperature=2.0, seed=4, **choose)).text)


def test_ignore_eos_and_whole_context(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine(max_model_len=100)
    out = engine.generate(PROMPT, params(max_tokens=36, ignore_eos=True, temperature=1.0))
    person(out.text)
    out = engine.generate(PROMPT, params(max_tokens=None, temperature=1.0, seed=8))
    person(out.text)
    assert len(out.token_ids) <= 36


def test_the_opener_is_weighed_at_the_first_position_only(shared: Engine) -> None:
    shape = '"!" | /[^!]+/'
    mark = shared.tokenizer.encode_text("!").tolist()[0]

    def run(bias: float) -> RequestOutput:
        chosen = Grammar("lark", f"start: {shape}", (mark, bias))
        return shared.generate(
            PROMPT, SamplingParams(max_tokens=8, temperature=0.0, grammar=chosen, logprobs=1)
        )

    low, high = run(-50.0), run(50.0)
    assert low.text != "!" and "!" not in low.text
    assert high.text == "!" and high.finish_reason == "stop"
    scores = low.choices[0].opener_scores
    assert scores is not None and scores == high.choices[0].opener_scores
    assert low.choices[0].logprobs and high.choices[0].logprobs
    assert high.choices[0].logprobs[0].logprob == pytest.approx(scores[0])  # raw, without bias
    assert low.choices[0].logprobs[0].logprob == pytest.approx(scores[1])
    turn = scores[1] - scores[0]
    assert run(turn - 0.5).text != "!"
    assert run(turn + 0.5).text == "!"
    plain = shared.generate(PROMPT, SamplingParams(max_tokens=2))
    assert plain.choices[0].opener_scores is None
    with pytest.raises(InvalidRequest, match="vocabulary"):
        shared.compile(Grammar("regex", "a", (10**6, 0.0)))


def test_bad_grammars_are_refused_before_the_queue(shared: Engine) -> None:
    with pytest.raises(InvalidRequest, match=r"\$\.properties\.x\.contains"):
        shared.generate(PROMPT, params({"properties": {"x": {"contains": {}}}}))
    with pytest.raises(InvalidRequest):
        shared.compile(grammar({"type": "nothing"}))
    with pytest.raises(InvalidRequest, match="grammar must be a Grammar"):
        SamplingParams(grammar="a")  # type: ignore[arg-type]


def test_a_grammar_that_fails_takes_its_own_call_only(
    make_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    real = Matcher.settle
    victim = [0]

    def settle(self: Matcher, token: int) -> int | None:
        taken = real(self, token)
        victim[0] += self._jump == 999
        if self._jump == 999 and victim[0] == 5:
            self._matcher.consume_token(0)  # a control token, which fits nowhere
            self._look()
        return taken

    monkeypatch.setattr(Matcher, "settle", settle)
    bad = grammar({**PERSON, "title": "another"})
    engine.compile(bad)
    engine._grammars.compile(bad)._jump = 999
    good = [engine.stream(PROMPT, params(temperature=1.0, seed=s)) for s in range(2)]
    with pytest.raises(EngineError, match="grammar cannot be followed"):
        engine.generate(PROMPT, SamplingParams(max_tokens=40, grammar=bad))
    for stream in good:
        person(stream.result(20).text)
    assert engine.alive
    engine.check()
    assert engine.stats()["num_requests_running"] == 0
