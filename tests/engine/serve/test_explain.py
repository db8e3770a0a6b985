"""What a template does to a conversation, and what that does to its prefix."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentkv.engine.serve.explain import moved
from agentkv.engine.types import RenderedPrompt, Span, as_ids

if TYPE_CHECKING:
    from tests.engine.serve.conftest import Live

CHAT = "/v1/chat/completions"

# Thoughts since the last question stay, older ones go; as Qwen3's template does it.
THINKS = """
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- if tools %}{{ '<|im_start|>system\n# Tools\n' }}{% for t in tools %}{{ t | tojson }}{{ '\n' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' and m.reasoning_content and loop.index0 > ns.last %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}
{{- m.content or '' }}
{%- for c in m.tool_calls or [] %}{{ '<tool_call>\n{"name": ' + (c.function.name | tojson) + ', "arguments": ' + (c.function.arguments | tojson) + '}\n</tool_call>' }}{% endfor %}
{{- '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
""".strip()

# Every system message goes to the front, wherever it stood.
HOISTS = """
{%- for m in messages %}{% if m.role == 'system' %}{{ '<|im_start|>system\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}
{%- for m in messages %}{% if m.role != 'system' %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
""".strip()


@pytest.fixture
def served(
    tiny_llama_dir: Path,
    tmp_path: Path,
    make_engine: Callable[..., Any],
    serve: Callable[..., Live],
) -> Iterator[Callable[[str], Live]]:
    """`served(template)`: a server of the tiny model with another chat template."""

    def start(template: str) -> Live:
        folder = tmp_path / "model"
        shutil.copytree(tiny_llama_dir, folder)
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        return serve(make_engine(model=str(folder)))

    yield start


CLEAN = {
    # The tiny model says broken characters else, which no client can send back.
    "type": "json_schema",
    "json_schema": {"name": "x", "schema": {"const": "One it is."}},
}


def turn(live: Live, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    body = {"messages": messages, "temperature": 0, "max_tokens": 8, "agentkv": {"session": "s"}}
    reply = live.post(CHAT, {**body, **more})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def shown(live: Live, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    reply = live.post("/apply-template", {"messages": messages, **more})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_b046_thoughts_are_the_template_s_to_keep_and_a_dropped_one_is_named(
    served: Callable[[str], Live], field: str
) -> None:
    live = served(THINKS)
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "find", "arguments": '{"a": 1}'},
    }
    loop: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", field: "I should look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "It was sent."},
    ]
    inside = shown(live, loop)
    assert "<think>\nI should look.\n</think>" in inside["prompt"]
    assert inside["dropped"] == []
    first = turn(live, loop)
    loop.append({"role": "assistant", "content": "Sent."})
    more = [*loop, {"role": "user", "content": "Thanks. And the other?"}]
    after = shown(live, more)
    assert "I should look." not in after["prompt"]
    assert after["dropped"] == [f"messages[1].{field}"]
    block = turn(live, more)["usage"]["agentkv"]
    assert block["miss"]["reason"] == "reasoning_stripped"
    again = turn(live, loop[:3])
    hit = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert hit == first["usage"]["prompt_tokens"] - 1, "sent back as it was, all of it is known"


def test_a_thought_of_the_model_has_a_field_of_its_own(served: Callable[[str], Live]) -> None:
    live = served(THINKS)
    body = {
        "messages": [
            {"role": "user", "content": "Well?"},
            {"role": "assistant", "content": "<think>\n"},
        ],
        "continue_final_message": True,
        "temperature": 0,
        "max_tokens": 12,
    }
    (choice,) = live.post(CHAT, body).json()["choices"]
    message = choice["message"]
    assert len(message["reasoning_content"]) >= 4
    assert message["content"] == "" and choice["finish_reason"] == "length"
    thought = text = ""
    for event in live.stream(CHAT, body):
        for part in event["choices"]:
            thought += part["delta"].get("reasoning_content", "")
            text += part["delta"].get("content", "")
    assert (thought, text) == (message["reasoning_content"], message["content"])


def test_b047_a_system_message_that_is_moved_is_named(served: Callable[[str], Live]) -> None:
    live = served(HOISTS)
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two."},
        {"role": "system", "content": "Remember: be brief."},
        {"role": "user", "content": "Three?"},
    ]
    assert shown(live, messages)["moved"] == ["messages[3]"]
    before = turn(live, messages[:2])
    hit = turn(live, messages)["usage"]
    # The reminder went in front of what had been cached: all behind the first message is new.
    assert hit["prompt_tokens_details"]["cached_tokens"] < before["usage"]["prompt_tokens"] - 5
    as_user = [*messages[:3], {"role": "user", "content": "Remember: be brief."}, messages[4]]
    assert shown(live, as_user)["moved"] == []


def test_b047_a_template_that_leaves_it_in_place_keeps_the_prefix(tiny: Live) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "One?"},
    ]
    for follow in ("Remember: be brief.", "Remember: be kind too."):
        reply = turn(tiny, messages, response_format=CLEAN, max_tokens=40)
        said = reply["choices"][0]["message"]["content"]
        known = reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"]
        messages = [
            *messages,
            {"role": "assistant", "content": said},
            {"role": "system", "content": follow},
            {"role": "user", "content": "More?"},
        ]
        assert shown(tiny, messages)["moved"] == []
        usage = turn(tiny, messages)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == known - 1


@pytest.mark.parametrize(
    ("order", "want"),
    [
        ([0, 1, 2], []),
        ([0, 3, 1, 2, 4], ["messages[3]"]),
        ([1, 2, 0], ["messages[0]"]),
        ([], []),
        ([0, 0, 1], []),
    ],
)
def test_the_fewest_that_moved(order: list[int], want: list[str]) -> None:
    spans = tuple(
        Span(name=f"messages[{n}]" + (f"#{i}" if n in order[:i] else ""), kind="x", start=i, end=i)
        for i, n in enumerate(order)
    )
    assert moved(RenderedPrompt(token_ids=as_ids([1]), spans=spans)) == want


def test_texts_that_a_template_quotes_are_not_dropped(tiny: Live) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": 'Say "hi"\n'}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "  "},
    ]
    assert shown(tiny, messages)["dropped"] == []
