"""The layout measured in tokens, with real chat templates: what the next call shares with this one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.layout import Memory, arrange
from agentkv.prompt import Document, Prompt, static, volatile

if TYPE_CHECKING:
    from agentkv.engine.text.render import Renderer
    from agentkv.engine.types import RenderedPrompt

RULES = static("You are the support agent of a parcel service. Be kind, and be brief. " * 4)
TOOLS = [
    {"type": "function", "function": {"name": n, "description": f"Tool {n}.", "parameters": {}}}
    for n in ("track", "refund", "find")
]
TEMPLATES = [
    "Qwen-Qwen2.5-7B-Instruct",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
]


@pytest.fixture(scope="module")
def renderer(smollm2_dir: Path) -> Renderer:
    from agentkv.engine.text.render import Renderer
    from agentkv.engine.text.tokenizer import Tokenizer

    return Renderer.load(smollm2_dir, Tokenizer.load(smollm2_dir))


def common(a: RenderedPrompt, b: RenderedPrompt) -> int:
    n = min(len(a.token_ids), len(b.token_ids))
    differs = np.flatnonzero(a.token_ids[:n] != b.token_ids[:n])
    return int(differs[0]) if len(differs) else n


def call(step: int) -> dict[str, Any]:
    function = {"name": "track", "arguments": f'{{"parcel": "P-{step}"}}'}
    return {"id": f"c{step}", "type": "function", "function": function}


def loop(turns: int = 3, steps: int = 3) -> list[list[dict[str, Any]]]:
    """The messages of each call of an agent: a clock in the system message, tools in each turn."""
    calls: list[list[dict[str, Any]]] = []
    history: list[dict[str, Any]] = []
    for turn in range(turns):
        history.append({"role": "user", "content": f"Where is parcel {turn}? It is late!"})
        for step in range(steps):
            now = volatile(f"Now: 12:{turn}{step}:07", name="clock")
            calls.append([{"role": "system", "content": [now, RULES]}, *history])
            if step == steps - 1:
                history.append({"role": "assistant", "content": f"It is in town {turn}."})
                break
            history.append(
                {"role": "assistant", "content": None, "tool_calls": [call(10 * turn + step)]}
            )
            result = {"role": "tool", "content": f"seen in town {step}", "tool_call_id": f"c{step}"}
            history.append(result)
    return calls


def test_the_next_call_shares_all_but_the_block(renderer: Renderer) -> None:
    """In turns and in tool loops alike: up to the first token of the block, and not one less."""
    last: RenderedPrompt | None = None
    trailed = False
    memory = Memory()
    for messages in loop():
        prompt = Prompt.build(messages, TOOLS)
        laid = arrange(prompt, memory=memory, session="s")
        now = renderer.render(laid.messages, laid.tools)
        if last is not None:
            block = next(s for s in last.spans if s.kind == "context")
            shared = common(last, now)
            # A block that is a message of its own begins with `<|im_start|>`, as any message does.
            assert shared - block.start == (1 if trailed else 0)
        last, trailed = now, laid.trails


def test_as_given_the_clock_costs_everything_behind_it(renderer: Renderer) -> None:
    calls = loop()
    one, two = (renderer.render(m, TOOLS) for m in calls[3:5])
    clock = next(s for s in one.spans if s.name == "clock")
    assert common(one, two) < clock.end


def test_shuffled_tools_give_the_same_tokens(renderer: Renderer) -> None:
    messages = loop()[0]
    prompts = []
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        laid = arrange(Prompt.build(messages, [TOOLS[i] for i in order]))
        prompts.append(renderer.render(laid.messages, laid.tools))
    assert all(np.array_equal(prompts[0].token_ids, p.token_ids) for p in prompts)
    assert [s.items for s in prompts[0].spans if s.kind == "tools"] == [("find", "refund", "track")]


def test_documents_that_come_and_go(renderer: Renderer) -> None:
    """Documents of the session stay ahead; those of the turn cost no token of the history."""
    memory = Memory()
    history: list[dict[str, Any]] = []
    last: RenderedPrompt | None = None
    lasting = [Document(n, f"The terms of {n} are long and dry. " * 5) for n in "ab"]
    for k in range(4):
        history.append({"role": "user", "content": f"Question {k}?"})
        docs = [*lasting[:: -1 if k % 2 else 1], Document(f"hit {k}", "found text " * 20, "turn")]
        prompt = Prompt.build([{"role": "system", "content": [RULES]}, *history], documents=docs)
        laid = arrange(prompt, memory=memory, session="docs")
        now = renderer.render(laid.messages)
        if last is not None:
            passing = next(s for s in last.spans if s.stability == "turn")
            assert common(last, now) == passing.start
        last = now
        history.append({"role": "assistant", "content": f"Answer {k}."})


@pytest.mark.parametrize("name", [*TEMPLATES, "own"])
def test_what_renders_as_given_renders_laid_out(
    renderer: Renderer, traces: Path, name: str
) -> None:
    from agentkv.engine.text.render import Renderer
    from agentkv.engine.text.template import ChatTemplate

    if name != "own":
        source = (traces / "chat_templates" / f"{name}.jinja").read_text("utf-8")
        tokens = {"bos_token": "<s>", "eos_token": "</s>"}
        renderer = Renderer(renderer.tokenizer, ChatTemplate(source, named_tokens=tokens))
    documents = [Document("s", "lasting"), Document("t", "passing", "turn")]
    rendered = 0
    for messages in loop():
        for tools in (TOOLS, []):
            for docs in (documents, documents[:1], []):
                prompt = Prompt.build(messages, tools, docs)
                given = arrange(prompt, "off")
                try:
                    renderer.render(given.messages, given.tools or None)
                except InvalidRequest:
                    continue  # The template takes no tools, or no tool results.
                laid = arrange(prompt)
                try:
                    text = renderer.render(laid.messages, laid.tools or None).text
                except InvalidRequest:
                    # Mistral's takes no user message behind a tool result.
                    assert laid.trails
                    assert name.startswith("mistral")
                    laid = arrange(prompt, trailing=False)
                    text = renderer.render(laid.messages, laid.tools or None).text
                assert text.count(f"Now: 12:{messages[0]['content'][0]['text'][8:]}") == 1
                assert text.count("passing") == sum(d.id == "t" for d in docs)
                rendered += 1
    assert rendered
