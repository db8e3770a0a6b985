"""What users of other systems reported, as far as the prompt decides it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.text.render import Renderer
from agentkv.engine.text.sandbox import PINNED_DATE
from agentkv.engine.text.template import ChatTemplate
from agentkv.engine.types import RenderedPrompt

from .calls.conftest import LLAMA3, QWEN3, MakeRenderer, make  # noqa: F401  (a fixture)
from .conftest import MakeTokenizer

USER: dict[str, Any] = {"role": "user", "content": "Is it late?"}
CALL: dict[str, Any] = {
    "id": "call_x",
    "type": "function",
    "function": {"name": "look", "arguments": '{"id": 1}'},
}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "call_x", "content": "no"}


def common(left: RenderedPrompt, right: RenderedPrompt) -> int:
    pairs = zip(left.token_ids.tolist(), right.token_ids.tolist(), strict=False)
    return next(
        (i for i, (a, b) in enumerate(pairs) if a != b),
        min(len(left.token_ids), len(right.token_ids)),
    )


def test_b043_an_empty_turn_with_calls_has_one_form(make: MakeRenderer) -> None:  # noqa: F811
    for kind in ("smollm2", "qwen", "llama3", "mistral"):
        renderer = make(kind)
        prompts = set()
        contents: list[dict[str, Any]] = [
            {},
            {"content": None},
            {"content": ""},
            {"content": []},
            {"content": [{"type": "text", "text": ""}]},
        ]
        for content in contents:
            said = {"role": "assistant", **content, "tool_calls": [CALL]}
            prompt = renderer.render([USER, said, RESULT])
            assert "None" not in prompt.text
            prompts.add(prompt.token_ids.tobytes())
        assert len(prompts) == 1


def test_b046_three_names_of_a_thought_are_one_field(make: MakeRenderer) -> None:  # noqa: F811
    """The rule: `reasoning_content`, `reasoning` and `thinking` are one field, in this order; a
    template that knows thoughts also finds one between tags in the content. Whether an old thought
    is shown is for the template."""
    said = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    spellings: list[dict[str, Any]] = [
        {**said, "reasoning_content": "I look."},
        {**said, "reasoning": "I look."},
        {**said, "thinking": "I look."},
        {**said, "content": "<think>\nI look.\n</think>\n\n"},
    ]
    thinker = make("qwen3")
    texts = {thinker.render([USER, message, RESULT]).text for message in spellings}
    assert len(texts) == 1 and "<think>\nI look.\n</think>" in texts.pop()
    # A template without thoughts leaves the field out, and keeps the tags, which are content.
    plain = make("smollm2")
    shown = ["I look." in plain.render([USER, message, RESULT]).text for message in spellings]
    assert shown == [False, False, False, True]


def test_b047_a_reminder_in_the_middle_stays_there(make: MakeRenderer) -> None:  # noqa: F811
    turns = [
        {"role": "system", "content": "Be kind."},
        USER,
        {"role": "assistant", "content": "No."},
        {"role": "system", "content": "Remember: it is a secret."},
        {"role": "user", "content": "And now?"},
    ]
    for kind in ("smollm2", "qwen"):
        renderer = make(kind)
        first = renderer.render(turns)
        names = [span.name for span in first.spans]
        assert names == [*(f"messages[{i}]" for i in range(5)), "generation_prompt"]
        more = [*turns, {"role": "assistant", "content": "No."}, USER]
        assert common(first, renderer.render(more)) == len(first.token_ids)
    with pytest.raises(InvalidRequest) as caught:  # a template that cannot place it says so
        make("mistral").render(turns)
    assert caught.value.param == "messages"


def test_b073_thoughts_that_the_template_drops_end_the_common_prefix_there(
    make: MakeRenderer,  # noqa: F811
) -> None:
    renderer = make("qwen3")
    said = {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning": "I look."}
    loop = [USER, said, RESULT]
    first = renderer.render(loop)
    assert "I look." in first.text
    # In the loop of one question the prompt only grows,
    again = [*loop, {**said, "tool_calls": [{**CALL, "id": "y"}]}, {**RESULT, "tool_call_id": "y"}]
    opened = len(first.token_ids) - len(renderer.tokenizer.encode_text("assistant\n")) - 1
    assert common(first, renderer.render(again)) >= opened
    # and with the next question the old thought is gone, exactly from where it stood.
    later = renderer.render([*loop, {"role": "assistant", "content": "No."}, USER])
    assert "I look." not in later.text
    spans = {span.name: span for span in first.spans}
    assert spans["messages[1]"].start < common(first, later) < spans["messages[1]"].end


def test_b074_a_date_that_the_template_writes_does_not_move(
    make_tokenizer: MakeTokenizer,
) -> None:
    tokenizer, _ = make_tokenizer("chatml")
    clock = LLAMA3.replace(
        "(date_string or '26 Jul 2024')", "(date_string or strftime_now('%d %b %Y'))"
    )
    for source in (LLAMA3, clock):
        prompts = set()
        for now in (PINNED_DATE, datetime(2025, 1, 1, 23, 59), datetime(2025, 1, 2, 0, 1)):
            template = ChatTemplate(source, named_tokens={"bos_token": ""}, now=now)
            renderer = Renderer(tokenizer, template)
            prompts.add(renderer.render([USER]).text)
            pinned = renderer.render([USER], template_kwargs={"date_string": "1 May 2030"})
            assert "Today Date: 1 May 2030" in pinned.text
        # Without a clock of the caller's own the date is the same at any time.
        assert len(prompts) == (1 if source is LLAMA3 else 3)
    assert (
        "Today Date: 26 Jul 2024"
        in Renderer(tokenizer, ChatTemplate(clock, named_tokens={"bos_token": ""}))
        .render([USER])
        .text
    )


def test_the_templates_of_these_tests_compile() -> None:
    for source in (LLAMA3, QWEN3):
        assert ChatTemplate(source).renders_tools()
