"""Tool calls that a client sends back are fed to the model as the tokens that were sampled."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentkv.engine.text.calls.answer import Answer, ToolCall
from agentkv.engine.text.calls.reader import new_call_id
from agentkv.engine.text.calls.record import CallMemory, Sampled, same_json
from agentkv.engine.text.render import Renderer
from agentkv.engine.types import RenderedPrompt

from .conftest import KINDS, MakeRenderer
from .test_reader import encode, read, written

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_user",
            "description": "Looks up",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
        },
    }
]
# Written as no json.dumps writes them: white space, escapes, floats.
ARGUMENTS = (
    '{"q":"a/b"}',
    '{ "q" : "\\u00e9\\/x" }',
    '{"q": "hello",  "n": 1.50}',
    '{"q": "12", "n": 1e2, "o": {"a": [1,2 ,3]}}',
    "{}",
)


def respelled(answer: Answer, rng: random.Random) -> dict[str, Any]:
    """An answer as some client sends it back."""
    calls = []
    for call in answer.tool_calls:
        value = json.loads(call.arguments)
        arguments: Any = rng.choice(
            [
                json.dumps(value),
                json.dumps(value, separators=(",", ":")),
                json.dumps(value, ensure_ascii=False, indent=1),
                json.dumps(dict(reversed(value.items()))),
                value,
            ]
        )
        calls.append(
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments},
            }
        )
    message: dict[str, Any] = {"role": "assistant", "tool_calls": calls}
    if answer.text:
        message["content"] = rng.choice([answer.text, [{"type": "text", "text": answer.text}]])
    else:
        nothing: list[dict[str, Any]] = [{"content": None}, {"content": ""}, {"content": []}, {}]
        message.update(rng.choice(nothing))
    return message


def end(renderer: Renderer) -> int:
    (token,) = renderer.tokenizer.eos_ids
    return token


def answered(
    renderer: Renderer, prompt: RenderedPrompt, ids: Sequence[int], namespace: str = ""
) -> Answer:
    answer = read(renderer, ids, None)
    renderer.remember_calls(prompt, answer, ids, namespace=namespace)
    return answer


def loop(renderer: Renderer, rng: random.Random, turns: int = 12) -> list[bool]:
    """An agent loop; for each turn, whether its prompt went on exactly where the model stopped."""
    form = renderer.script.form
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find it."}]
    prompt = renderer.render(messages, TOOLS)
    exact = []
    for turn in range(turns):
        calls = [
            ("get_user", rng.choice(ARGUMENTS)) for _ in range(rng.randint(1, min(3, form.most)))
        ]
        said = "" if form.at_start or form.name.startswith("mistral") or turn % 3 else "I look."
        text = said + ("\n" if said else "") + written(renderer, calls)
        ids = [*encode(renderer, text, rng), end(renderer)]
        answer = answered(renderer, prompt, ids)
        assert [(c.name, c.arguments) for c in answer.tool_calls] == calls
        messages.append(respelled(answer, rng))
        for call in answer.tool_calls:
            result = {"role": "tool", "tool_call_id": call.id, "content": f"result {turn}"}
            messages.append(result)
        known = [*prompt.token_ids.tolist(), *ids]
        prompt = renderer.render(messages, TOOLS)
        exact.append(prompt.token_ids[: len(known)].tolist() == known)
        if exact[-1] and len(renderer._answers):
            assert prompt.replayed_tokens == len(known) - 1
            assert renderer.tokenizer.decode(prompt.token_ids, skip_special=False) == prompt.text
        spans = prompt.spans
        assert [s.start for s in spans] == [0, *(s.end for s in spans[:-1])]
        assert spans[-1].end == len(prompt.token_ids)
    return exact


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_of_tool_calls_only_ever_appends(kind: str, make: MakeRenderer) -> None:
    for seed in range(3):
        assert all(loop(make(kind), random.Random(seed)))
    cold = make(kind, replay_entries=0)
    # An empty object in few tokens may come out right by chance.
    assert sum(loop(cold, random.Random(0))) <= 4
    assert len(cold._answers) == 0


def start(renderer: Renderer, text: str = "", namespace: str = "") -> tuple[Any, Answer, list[int]]:
    """A question, an answer with one call (two where the format has it), all ids so far."""
    asked = [{"role": "user", "content": "Find it."}]
    prompt = renderer.render(asked, TOOLS, namespace=namespace)
    calls = [("get_user", '{"q":"a", "n":1}')] * min(2, renderer.script.form.most)
    said = text + ("\n" if text else "") + written(renderer, calls)
    ids = [*encode(renderer, said, random.Random(5)), end(renderer)]
    answer = answered(renderer, prompt, ids, namespace)
    return asked, answer, [*prompt.token_ids.tolist(), *ids]


def results(answer: Answer) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": c.id, "content": "ok"} for c in answer.tool_calls]


def goes_on(renderer: Renderer, messages: Any, known: list[int], namespace: str = "") -> bool:
    prompt = renderer.render(messages, TOOLS, namespace=namespace)
    return prompt.token_ids[: len(known)].tolist() == known


@pytest.mark.parametrize("kind", ["smollm2", "mistral", "llama3"])
def test_an_edited_answer_is_rendered_anew(kind: str, make: MakeRenderer) -> None:
    renderer = make(kind)
    text = "I look  it up." if kind == "smollm2" else ""
    asked, answer, known = start(renderer, text)
    sent = respelled(answer, random.Random(1))
    assert goes_on(renderer, [*asked, sent, *results(answer)], known)

    def edited(**changes: Any) -> dict[str, Any]:
        copy: dict[str, Any] = json.loads(json.dumps(sent))
        call = copy["tool_calls"][-1]
        if "arguments" in changes or "name" in changes:
            call["function"].update(changes)
        elif "id" in changes:
            call.update(changes)
        else:
            copy.update(changes)
        return copy

    edits = [
        edited(arguments='{"q": "a", "n": 2}'),
        edited(arguments='{"q": "a"}'),
        edited(arguments='{"q": "a", "n": true}'),
        edited(arguments='{"q": "a", "n": 1, "m": null}'),
        edited(arguments='{"q": "A", "n": 1}'),
        edited(arguments='{"q": "a", "n": 1'),
        edited(name="get_users"),
        edited(id=new_call_id()),
        edited(id=None),
        edited(tool_calls=sent["tool_calls"] * (2 if kind != "llama3" else 1), content="More."),
    ]
    if text:
        # B080: white space that a client tidies up is another text.
        edits += [edited(content=c) for c in (text.replace("  ", " "), text + "\n", "", None)]
    cold = make(kind, replay_entries=0)
    for edit in edits:
        messages = [*asked, edit, *results(answer)]
        prompt = renderer.render(messages, TOOLS)
        assert prompt.token_ids.tolist() == cold.render(messages, TOOLS).token_ids.tolist()
        assert prompt.text == cold.render(messages, TOOLS).text
    assert goes_on(renderer, [*asked, sent, *results(answer)], known)


def test_an_answer_belongs_to_its_place(make: MakeRenderer) -> None:
    """Another message where the answer stood, or another history before it: nothing is put there."""
    renderer = make("smollm2")
    asked, answer, _ = start(renderer)
    sent = respelled(answer, random.Random(1))
    cold = make("smollm2", replay_entries=0)
    for messages in (
        [{"role": "user", "content": "Find it!"}, sent, *results(answer)],
        [*asked, {"role": "assistant", "content": "hello"}, *asked, sent, *results(answer)],
        [*asked, {"role": "assistant", "content": "hello"}, sent],
        [*asked, {"role": "user", "content": "And?"}, sent],
    ):
        got = renderer.render(messages, TOOLS)
        assert got.token_ids.tolist() == cold.render(messages, TOOLS).token_ids.tolist()
        assert got.replayed_tokens == 0
    other = json.loads(json.dumps(TOOLS).replace("Looks up", "Other"))
    assert renderer.render([*asked, sent], other).replayed_tokens == 0


def test_answers_stay_within_their_namespace(make: MakeRenderer) -> None:
    renderer = make("smollm2")
    asked, answer, known = start(renderer, namespace="a")
    messages = [*asked, respelled(answer, random.Random(1)), *results(answer)]
    assert goes_on(renderer, messages, known, "a")
    assert not goes_on(renderer, messages, known, "b")
    assert not goes_on(renderer, messages, known, "")


def test_what_is_remembered_is_bounded(make: MakeRenderer) -> None:
    renderer = make("smollm2", replay_entries=2)
    kept = []
    for _ in range(3):
        asked, answer, known = start(renderer)
        kept.append(([*asked, respelled(answer, random.Random(1))], known[:-1]))
    # The text of the three is the same, so each finds the ids that were sampled last: only the
    # first one's are gone as an answer.
    assert len(renderer._answers) == 2
    memory = CallMemory(entries=100, nbytes=5000)
    (sampled, _), *_ = renderer._answers._items.values()
    for i in range(50):
        call = replace(sampled.answer.tool_calls[0], id=f"c{i}")
        memory.put("", replace(sampled, answer=Answer("", (call,))))
        assert memory.nbytes <= 5000
    assert 0 < len(memory) < 50
    big = Sampled(Answer("x" * 5000, (ToolCall("z", "f", "{}"),)), b"", "", ())
    memory.put("", big)
    assert memory.nbytes <= 5000


def test_a_thought_is_fed_back_where_the_template_shows_it(make: MakeRenderer) -> None:
    """B046, B073: the client drops the thought, or sends it under one of three names."""
    renderer, rng = make("qwen3"), random.Random(3)
    asked = [{"role": "user", "content": "Find it."}]
    prompt = renderer.render(asked, TOOLS)
    call = written(renderer, [("get_user", '{"q":"x"}')])
    ids = [*encode(renderer, f"<think>\nI must look.\n</think>\n\n{call}", rng), end(renderer)]
    answer = read(renderer, ids, None, thinks=True)
    assert answer.reasoning == "I must look." and answer.tool_calls
    renderer.remember_calls(prompt, answer, ids)
    known = [*prompt.token_ids.tolist(), *ids]
    sent = respelled(answer, rng)
    tagged = {**sent, "content": "<think>\nI must look.\n</think>\n\n"}
    spellings = [
        sent,
        {**sent, "reasoning_content": "I must look."},
        {**sent, "reasoning": "I must look.\n"},
        {**sent, "thinking": "I must look."},
        tagged,
    ]
    for message in spellings:
        assert goes_on(renderer, [*asked, message, *results(answer)], known), message
    # Another thought is an edit.
    other = {**sent, "reasoning_content": "I need not look."}
    text = renderer.render([*asked, other, *results(answer)], TOOLS).text
    assert "I need not look." in text and "I must look." not in text
    # After the next question this template leaves thoughts out: so does the prompt.
    later = [*asked, sent, *results(answer), {"role": "user", "content": "And now?"}]
    cold = make("qwen3", replay_entries=0)
    got = renderer.render(later, TOOLS)
    assert "I must look." not in got.text
    assert got.token_ids.tolist() == cold.render(later, TOOLS).token_ids.tolist()


def test_the_same_json_in_another_spelling() -> None:
    assert same_json({"a": 1, "b": [1.0]}, {"b": [1], "a": 1.0})
    for left, right in [
        (1, True),
        (0, False),
        ([1], [1, 2]),
        ({"a": None}, {}),
        ("1", 1),
        (None, 0),
    ]:
        assert not same_json(left, right) and not same_json(right, left)
