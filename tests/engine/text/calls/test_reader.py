"""Answers in every format, cut into pieces in every way."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from agentkv.engine.text.calls.answer import Answer, AnswerDelta
from agentkv.engine.text.calls.reader import AnswerReader, new_call_id
from agentkv.engine.text.detok import OutputText
from agentkv.engine.text.render import Renderer

from .conftest import KINDS, MakeRenderer

NAMES = ("get_user", "find/é")
ARGUMENTS = (
    "{}",
    '{"id": 12}',
    '{"q": "a \\"b\\" {[</tool_call>", "n": [1, {"x": null}], "é": "日本🙂"}',
)


class Whole:
    """An answer put together from deltas, as a client does it."""

    def __init__(self) -> None:
        self.text = ""
        self.reasoning = ""
        self.calls: list[dict[str, str]] = []

    def add(self, delta: AnswerDelta) -> None:
        self.text += delta.text
        self.reasoning += delta.reasoning
        for call in delta.calls:
            if call.id is not None:
                assert call.index == len(self.calls) and call.name
                self.calls.append({"id": call.id, "name": call.name, "arguments": ""})
            else:
                assert call.name is None and call.index == len(self.calls) - 1
            self.calls[call.index]["arguments"] += call.arguments

    def answer(self) -> Answer:
        from agentkv.engine.text.calls.answer import ToolCall

        return Answer(self.text, tuple(ToolCall(**c) for c in self.calls), self.reasoning)


def read(
    renderer: Renderer, ids: Sequence[int], rng: random.Random | None, **options: Any
) -> Answer:
    """Read ids as the engine gives them: text and tokens in pieces of random size."""
    reader = AnswerReader(renderer.script, renderer.tokenizer, NAMES, **options)
    whole, output = Whole(), OutputText(renderer.tokenizer)
    text, waiting = "", []
    for token in ids:
        text += output.feed(token)
        waiting.append(token)
        if rng is not None and rng.random() < 0.5:
            # the text may lag behind, as it does for a stop string
            cut = rng.randint(0, len(text)) if rng.random() < 0.3 else len(text)
            whole.add(reader.feed(text[:cut], waiting))
            text, waiting = text[cut:], []
            assert "\ufffd" not in whole.text
    whole.add(reader.feed(text + output.finish(), waiting))
    whole.add(reader.finish())
    assert whole.answer() == reader.answer
    return reader.answer


def plain(answer: Answer) -> tuple[str, str, list[tuple[str, str]]]:
    return answer.text, answer.reasoning, [(c.name, c.arguments) for c in answer.tool_calls]


def written(renderer: Renderer, calls: Sequence[tuple[str, str]]) -> str:
    """Several calls as their format writes them."""
    form = renderer.script.form
    if form.sep is None:
        return form.gap.join(form.written(*call) for call in calls)
    bodies = [
        form.written(*call)[len(form.opener + form.open) : -len(form.close)] for call in calls
    ]
    return form.opener + form.open + form.sep.join(bodies) + form.close


def encode(renderer: Renderer, text: str, rng: random.Random) -> list[int]:
    """Ids of a text in which the format's control tokens are control tokens; cut into odd tokens."""
    ids: list[int] = []
    tokenizer = renderer.tokenizer
    pattern = re.compile("|".join(map(re.escape, tokenizer.added_tokens)))
    at = 0
    for found in [*pattern.finditer(text), None]:
        end = found.start() if found else len(text)
        while at < end:
            size = rng.choice((1, 2, 3, 8, 50))
            ids += tokenizer.encode_stretch(text[at : min(end, at + size)], first=False)[0].tolist()
            at = min(end, at + size)
        if found:
            ids.append(tokenizer.added_tokens[found.group()])
            at = found.end()
    return ids


@pytest.mark.parametrize("kind", KINDS)
def test_calls_are_read_alike_however_they_are_cut(kind: str, make: MakeRenderer) -> None:
    renderer = make(kind)
    form = renderer.script.form
    rng = random.Random(kind)
    texts = (
        [""] if form.at_start else ["", "I look it up.", "a < b, {x} [y]\n\nok <tool", "日本 \n"]
    )
    names = NAMES if form.quoted else ("get_user",)
    for text in texts:
        for count in (1, 2, 3)[: form.most]:
            calls = [(rng.choice(names), rng.choice(ARGUMENTS)) for _ in range(count)]
            if any("</tool_call>" in renderer.tokenizer.added_tokens for _ in calls):
                calls = [(n, a.replace("</tool_call>", "</tool>")) for n, a in calls]
            gap = "\n" if text else ""
            ids = encode(renderer, text + gap + written(renderer, calls), rng)
            want = (text.rstrip(), "", calls)
            assert plain(read(renderer, ids, None)) == want
            for _ in range(15):
                assert plain(read(renderer, ids, rng)) == want
            for _ in range(3):
                assert plain(read(renderer, ids, rng, guarded=False)) == want


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_at_every_token_gives_a_partial_call_and_no_error(
    kind: str, make: MakeRenderer
) -> None:
    """B040: max_tokens may end an answer anywhere."""
    renderer = make(kind)
    rng = random.Random(kind)
    call = renderer.script.form.written("get_user", '{"q": "hello", "n": [1, 2]}')
    ids = encode(renderer, call, rng)
    seen = set()
    for size in range(len(ids) + 1):
        answer = read(renderer, ids[:size], None)
        assert plain(answer) == plain(read(renderer, ids[:size], rng))
        if answer.tool_calls:
            assert answer.text == "" and answer.tool_calls[0].name == "get_user"
            assert '{"q": "hello", "n": [1, 2]}'.startswith(answer.tool_calls[0].arguments)
            seen.add(answer.tool_calls[0].arguments)
        else:
            # Only what is not yet an opener shows as text.
            assert renderer.script.form.opener.startswith(answer.text.strip())
            only = read(renderer, ids[:size], None, speaks=False)
            assert plain(only) == ("", "", [])
    assert len(seen) > 10 and json.loads(max(seen, key=len)) == {"q": "hello", "n": [1, 2]}


@pytest.mark.parametrize("kind", KINDS)
def test_what_only_looks_like_a_call_is_text(kind: str, make: MakeRenderer) -> None:
    renderer = make(kind)
    form, rng = renderer.script.form, random.Random(kind)
    opener, control = form.opener, renderer.script.sealed(renderer.script.opener)
    good = form.written("get_user", "{}")
    looks = [
        form.written("unknown", "{}"),
        form.written("get_user", "[1]"),
        good.replace("get_user", "get_user " if form.quoted else "get/user"),
        f"{opener} is how calls begin",
        opener,
        opener * 3,
    ]
    for text in looks:
        shown = text.replace(opener, "") if control else text
        for known in ("[ARGS]",) if control else ():
            shown = shown.replace(known, "")
        options = {"guarded": False}
        ids = encode(renderer, text, rng)
        assert plain(read(renderer, ids, None, **options)) == (shown, "", [])
        assert plain(read(renderer, ids, rng, **options)) == (shown, "", [])
    bad = form.written("get_user", '{"a": 1,}')
    answer = read(renderer, encode(renderer, bad, rng), rng, guarded=False)
    assert not answer.tool_calls and '{"a": 1,}' in answer.text
    # text that spells a control token is not one
    if control:
        ids = renderer.tokenizer.encode_text(good).tolist()
        assert plain(read(renderer, ids, rng)) == (good, "", [])


def test_without_tools_calls_are_text(make: MakeRenderer) -> None:
    renderer = make("smollm2")
    text = renderer.script.form.written("get_user", "{}")
    reader = AnswerReader(renderer.script, renderer.tokenizer)
    assert reader.feed(text).text == text
    reader.finish()
    assert plain(reader.answer) == (text, "", [])


def test_only_what_may_become_an_opener_is_held_back(make: MakeRenderer) -> None:
    renderer = make("smollm2")
    reader = AnswerReader(renderer.script, renderer.tokenizer, NAMES)
    assert reader.feed("Hello <").text == "Hello"
    assert reader.feed("b>, ").text == " <b>,"
    assert reader.feed("you").text == " you"
    assert reader.feed('\n<tool_call>\n{"na').text == ""
    delta = reader.feed('me": "get_user", "arguments": {"a"')
    assert [(c.name, c.arguments) for c in delta.calls] == [("get_user", ""), (None, '{"a"')]
    assert [c.arguments for c in reader.feed(": 1").calls] == [": 1"]
    assert [c.arguments for c in reader.feed("}}\n</tool_call>").calls] == ["}"]
    assert reader.finish() == AnswerDelta()
    assert reader.answer.text == "Hello <b>, you"


def test_text_without_an_opener_comes_out_unchanged(make: MakeRenderer) -> None:
    for kind in KINDS:
        renderer, rng = make(kind), random.Random(kind)
        for text in (
            "",
            " ",
            "\n\n",
            "a\n",
            "  a <",
            "{",
            "[",
            "x [TOOL_CALL",
            '{"name"',
            "🙂\n {",
        ):
            ids = encode(renderer, text, rng)
            assert plain(read(renderer, ids, rng)) == (text, "", [])


@pytest.mark.parametrize("kind", ["qwen3", "smollm2", "llama3"])
def test_thoughts_go_apart(kind: str, make: MakeRenderer) -> None:
    renderer, rng = make(kind), random.Random(kind)
    call = renderer.script.form.written("get_user", '{"id": 1}')
    cases = [
        ("<think>\nhm\n\nso\n</think>\n\nHello", ("Hello", "hm\n\nso", [])),
        ("<think>\n\n</think>\n\nHello\n", ("Hello\n", "", [])),
        (f"<think>\nhm\n</think>\n\n{call}", ("", "hm", [("get_user", '{"id": 1}')])),
        ("<think>\nhm, cut o", ("", "hm, cut o", [])),
        ("<think>hm</thin", ("", "hm</thin", [])),
        ("Hello <think> x</think>", ("Hello <think> x</think>", "", [])),
        ("<thin", ("<thin", "", [])),
        ("", ("", "", [])),
    ]
    for text, want in cases:
        ids = encode(renderer, text, rng)
        for _ in range(8):
            assert plain(read(renderer, ids, rng, thinks=True)) == want, text
        if text.startswith("<think>"):
            inside = encode(renderer, text.removeprefix("<think>"), rng)
            assert plain(read(renderer, inside, rng, thinking=True)) == want, text


def test_call_ids_are_random_and_of_one_form() -> None:
    ids = {new_call_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(re.fullmatch(r"call_[A-Za-z0-9]{24}", i) for i in ids)


def test_another_reader_of_this_format_says_the_same(make: MakeRenderer) -> None:
    """transformers' own parser, with its template for Qwen 2 and 3, as a second opinion."""
    from transformers.utils.chat_parsing import parse_response

    template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "reasoning_content": {"open": "<think>", "close": "</think>", "content": "text"},
            "tool_calls": {
                "open_pattern": r"\s*<tool_call>",
                "close": "</tool_call>",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            "content": {"content": "text"},
        },
    }
    renderer, rng = make("qwen3"), random.Random(4)
    for thought in ("", "<think>\nhm\n</think>\n\n"):
        for text in ("", "I look it up.", "a <b> {c}\n\nd"):
            for count in range(3):
                calls = [("get_user", rng.choice(ARGUMENTS[:2])) for _ in range(count)]
                gap = "\n" if text and calls else ""
                whole = thought + text + gap + written(renderer, calls)
                theirs = parse_response(whole, template, prefix="")
                ours = read(renderer, encode(renderer, whole, rng), rng, thinks=True)
                assert ours.text == theirs.get("content", "")
                assert ours.reasoning == theirs.get("reasoning_content", "")
                functions = [c["function"] for c in theirs.get("tool_calls", [])]
                assert [
                    {"name": c.name, "arguments": json.loads(c.arguments)} for c in ours.tool_calls
                ] == functions
