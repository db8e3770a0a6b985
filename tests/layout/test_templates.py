"""Every arrangement renders under the chat templates that the input rendered under."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkv.engine.errors import InvalidRequest
from agentkv.layout import Memory, arrange
from agentkv.prompt import Document, Prompt, static, volatile

if TYPE_CHECKING:
    from agentkv.engine.text.render import Renderer

TEMPLATES = [
    "Qwen-Qwen2.5-7B-Instruct",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
]


@pytest.fixture(scope="module")
def renderers(tiny_llama_dir: Path, traces: Path) -> dict[str, Renderer]:
    from agentkv.engine.text.render import Renderer
    from agentkv.engine.text.template import ChatTemplate
    from agentkv.engine.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(tiny_llama_dir)
    out = {"own": Renderer.load(tiny_llama_dir, tokenizer)}
    for name in TEMPLATES:
        source = (traces / "chat_templates" / f"{name}.jinja").read_text("utf-8")
        tokens = {"bos_token": "<s>", "eos_token": "</s>"}
        out[name] = Renderer(tokenizer, ChatTemplate(source, named_tokens=tokens))
    return out


system_parts: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.sampled_from(
        [
            static("RULES one.", name="rules"),
            static("Never guess.", name="guard"),
            volatile("CLOCK 12:00.", name="clock"),
            volatile("CUSTOMER Ann.", name="customer", kind="memory", stability="session"),
            static("SHOT a.", name="shot", kind="examples"),
            {"type": "text", "text": "PLAIN text.\n"},
        ]
    ),
    max_size=4,
    unique_by=lambda p: p["text"],
)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[Any], list[Document]]:
    """What agents send: a system message or none, turns with and without tool calls."""
    messages: list[dict[str, Any]] = []
    parts = draw(system_parts)
    if parts:
        messages.append({"role": "system", "content": parts})
    named: list[str] = draw(st.lists(st.sampled_from("abc"), unique=True))
    tools = [{"name": n} for n in named]
    turns = draw(st.integers(1, 3))
    for turn in range(turns):
        messages.append({"role": "user", "content": f"USER {turn}?"})
        if draw(st.booleans()) and tools:
            call_id = f"call{turn:05d}"
            function = {"name": tools[0]["name"], "arguments": '{"x": 1}'}
            call = {"id": call_id, "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "content": f"RESULT {turn}", "tool_call_id": call_id})
            if turn == turns - 1 and draw(st.booleans()):
                break
        if turn < turns - 1:
            messages.append({"role": "assistant", "content": f"ANSWER {turn}."})
    documents = [
        Document(f"d{i}", f"DOC {i}.", draw(st.sampled_from(["session", "turn"])))
        for i in range(draw(st.integers(0, 2)))
    ]
    return messages, tools, documents


@pytest.mark.parametrize("name", [*TEMPLATES, "own"])
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(conversations(), st.sampled_from(["static_first", "learn", "canonical"]), st.booleans())
def test_what_renders_as_given_renders_laid_out(
    renderers: dict[str, Renderer],
    name: str,
    given_call: tuple[list[dict[str, Any]], list[Any], list[Document]],
    level: str,
    keep: bool,
) -> None:
    renderer = renderers[name]
    messages, tools, documents = given_call
    prompt = Prompt.build(messages, tools, documents)
    as_given = arrange(prompt, "off")
    try:
        before = renderer.render(as_given.messages, as_given.tools or None).text
    except InvalidRequest:
        return  # The template takes no tools, or no tool results: with no layout either.
    memory = Memory()
    for _ in range(2):
        laid = arrange(prompt, level, memory=memory, session="s", keep_tools=keep)
        try:
            text = renderer.render(laid.messages, laid.tools or None).text
        except InvalidRequest:
            # The one thing a template may refuse: a user message behind a tool result.
            assert laid.trails
            assert name.startswith("mistral")
            laid = arrange(
                prompt, level, memory=memory, session="s", keep_tools=keep, trailing=False
            )
            text = renderer.render(laid.messages, laid.tools or None).text
        whole = json.dumps(messages) + json.dumps([d.text for d in documents])
        for word in ("RULES", "guess", "CLOCK", "CUSTOMER", "SHOT", "PLAIN", "DOC 0", "DOC 1"):
            # Mistral's leaves out the system text behind a tool result, whoever lays it out.
            assert before.count(word) <= text.count(word) <= whole.count(word)
        assert [text.find(f"USER {k}") for k in range(3)] == sorted(
            (text.find(f"USER {k}") for k in range(3)), key=lambda at: (at < 0, at)
        )


def test_every_template_was_tried(renderers: dict[str, Renderer]) -> None:
    plain = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "?"}]
    assert all("Be kind." in r.render(plain).text for r in renderers.values())
    assert len(renderers) == len(TEMPLATES) + 1
