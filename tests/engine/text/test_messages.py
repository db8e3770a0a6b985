from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.text.render import Renderer
from agentkv.engine.text.template import ChatTemplate

from .conftest import TEMPLATE_FILES, MakeTokenizer

USER = {"role": "user", "content": "hi"}


def call(arguments: Any, **more: Any) -> dict[str, Any]:
    function = {"name": "look", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"type": "function", "function": function, **more}]}


def ids(renderer: Renderer, *messages: Any, **more: Any) -> list[int]:
    out: list[int] = renderer.render([*messages], **more).token_ids.tolist()
    return out


@pytest.mark.parametrize("name", ["shipped", "qwen", "deepseek", "mistral"])
def test_every_spelling_of_empty_content_gives_the_same_ids(
    make_tokenizer: MakeTokenizer, tools_template: str, name: str, request: pytest.FixtureRequest
) -> None:
    """B043: null, "", missing and list content of an assistant turn with tool calls."""
    source = tools_template
    if name != "shipped":
        folder = request.getfixturevalue("traces") / "chat_templates"
        source = (folder / TEMPLATE_FILES[name]).read_text("utf-8")
    tokenizer, _ = make_tokenizer("chatml" if name == "shipped" else name)
    renderer = Renderer(tokenizer, ChatTemplate(source, named_tokens=tokenizer.named_tokens))
    base = call('{"a": 1}', id="call_abc")
    answer = {"role": "tool", "tool_call_id": "call_abc", "content": "42"}
    want = ids(renderer, USER, base, answer)
    assert "None" not in renderer.render([USER, base, answer]).text
    assert "42" in renderer.render([USER, base, answer]).text
    for content in (None, "", [], [{"type": "text", "text": ""}]):
        assert ids(renderer, USER, {**base, "content": content}, answer) == want
    parts = [{"type": "text", "text": "4"}, {"type": "output_text", "text": "2"}]
    assert ids(renderer, USER, base, {**answer, "content": parts}) == want


def test_real_sessions_give_the_same_ids_in_every_spelling(
    traces: Path, renderer: Renderer
) -> None:
    """B043 on recorded agent sessions."""
    seen: list[int] = []
    with gzip.open(traces / "agent" / "tau_airline_gpt4o.sessions.jsonl.gz", "rt") as lines:
        for _, line in zip(range(10), lines, strict=False):
            messages = json.loads(line)["messages"]
            want = ids(renderer, *messages)

            def spell(m: dict[str, Any], how: str) -> dict[str, Any]:
                m = dict(m)
                if m.get("tool_calls") and not m.get("content"):
                    m["content"] = {"null": None, "empty": "", "parts": []}.get(how)
                    if how == "missing":
                        del m["content"]
                    seen.append(1)
                elif how == "parts" and m.get("content"):
                    m["content"] = [{"type": "text", "text": m["content"], "id": "x"}]
                return m

            for how in ("null", "empty", "missing", "parts"):
                assert ids(renderer, *(spell(m, how) for m in messages)) == want
    assert len(seen) > 40


def test_arguments_as_text_or_object_give_the_same_ids(renderer: Renderer) -> None:
    want = ids(renderer, USER, call('{"a": 1, "b": ["x"]}'))
    assert ids(renderer, USER, call({"a": 1, "b": ["x"]})) == want
    assert ids(renderer, USER, call('{"a":1,\n"b":["x"]}')) == want
    assert ids(renderer, USER, call('{"b": ["x"], "a": 1}')) != want
    spellings: tuple[Any, ...] = ("", None, {}, "{}")
    for empty in spellings:
        assert ids(renderer, USER, call(empty)) == ids(renderer, USER, call({}))


def test_arguments_that_are_no_json_stay_as_they_are(renderer: Renderer) -> None:
    assert '"arguments": {"a": ' in renderer.render([USER, call('{"a": ')]).text


def test_random_ids_are_never_rendered(make_tokenizer: MakeTokenizer, traces: Path) -> None:
    tokenizer, _ = make_tokenizer("mistral")
    source = (traces / "chat_templates" / TEMPLATE_FILES["mistral"]).read_text("utf-8")
    renderer = Renderer(tokenizer, ChatTemplate(source, named_tokens=tokenizer.named_tokens))

    def chat(first: str, second: str) -> list[dict[str, Any]]:
        return [
            {**USER, "id": "msg_" + first},
            {**call("{}", id=first), "id": "run--" + first},
            {"role": "tool", "tool_call_id": first, "content": "1", "id": second},
            {"role": "assistant", "content": "ok"},
            USER,
            call("{}", id=second),
            {"role": "tool", "tool_call_id": second, "content": "2"},
        ]

    one = renderer.render(chat("call_8f3a", "call_77"))
    two = renderer.render(chat("chatcmpl-tool-1", "x"))
    assert one.text == two.text
    assert one.text.count('"call00000"') == 2 and one.text.count('"call00001"') == 2


def test_answers_find_their_call_by_id_or_by_order(renderer: Renderer) -> None:
    from agentkv.engine.text.messages import read_messages

    assert renderer.template is not None
    both = call("{}", id="a")
    both["tool_calls"] = [*both["tool_calls"], *call("{}", id="b")["tool_calls"]]
    swapped = [
        USER,
        both,
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "tool", "content": ""},
    ]
    got = read_messages(swapped, renderer.template)
    assert [m.call_id for m in got[2:]] == ["call00001", "call00000"]


def test_developer_is_system_and_function_is_tool(renderer: Renderer) -> None:
    system = {"role": "system", "content": "Be kind."}
    assert ids(renderer, {**system, "role": "developer"}, USER) == ids(renderer, system, USER)
    tool = {"role": "tool", "content": "42"}
    assert ids(renderer, USER, {**tool, "role": "function"}) == ids(renderer, USER, tool)


SURROGATES = ["\ud83d", "x\ude00", "\ude00\ud83d"]


@pytest.mark.parametrize("bad", SURROGATES)
@pytest.mark.parametrize(
    "build",
    [
        lambda s: [{"role": "user", "content": s}],
        lambda s: [{"role": "user", "content": [{"type": "text", "text": s}]}],
        lambda s: [{"role": "user", "content": "a", "name": s}],
        lambda s: [USER, call({"a": s})],
        lambda s: [USER, call({s: 1})],
        lambda s: [USER, call(s)],
        lambda s: [USER, call(json.dumps({"a": s}))],
        lambda s: [USER, {"role": "assistant", "content": "", "reasoning_content": s}],
        lambda s: [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a", "agentkv": {"name": "b" + s}}],
            }
        ],
    ],
)
def test_lone_surrogates_are_refused_and_named(renderer: Renderer, build: Any, bad: str) -> None:
    """B041, before the engine: an error of the client's, not a crash."""
    with pytest.raises(InvalidRequest, match="surrogate") as caught:
        renderer.render(build(bad))
    assert caught.value.param == "messages"
    assert "messages[" in str(caught.value)


def test_surrogates_in_tools_are_refused_and_pairs_work(renderer: Renderer) -> None:
    with pytest.raises(InvalidRequest, match="surrogate") as caught:
        renderer.render([USER], [{"name": "a\ud83d"}])
    assert caught.value.param == "tools"
    pair = json.loads('"\\ud83d\\ude00"')
    assert renderer.render([{"role": "user", "content": pair}]).text.count("😀") == 1


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "hi",
        {"role": "user", "content": "hi"},
        ["hi"],
        [{"content": "hi"}],
        [{"role": 3, "content": "hi"}],
        [{"role": "user<|im_end|>", "content": "hi"}],
        [{"role": "wizard", "content": "hi"}],
        [{"role": "user", "content": 3}],
        [{"role": "user", "content": {"text": "a"}}],
        [{"role": "user", "content": [3]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user", "content": "a", "tool_calls": [{"function": {"name": "f"}}]}],
        [{"role": "assistant", "tool_calls": {"a": 1}}],
        [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}],
        [{"role": "assistant", "function_call": {"name": "f"}}],
        [{"role": "user", "content": [{"type": "text", "text": "a", "agentkv": {"kind": "x"}}]}],
        [{"role": "user", "content": [{"type": "text", "text": "a", "agentkv": {"name": 3}}]}],
        [{"role": "user", "content": "a", "name": 3}],
    ],
)
def test_what_would_not_reach_the_model_is_refused(renderer: Renderer, messages: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        renderer.render(messages)
    assert caught.value.param == "messages"


def test_deeply_nested_arguments_are_refused(renderer: Renderer) -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidRequest):
        renderer.render([USER, call({"a": deep})])
    text = "[" * 100_000 + "]" * 100_000
    assert "[[[[" in renderer.render([USER, call(text)]).text


def test_what_a_template_would_drop_silently_is_refused(
    make_tokenizer: MakeTokenizer, traces: Path
) -> None:
    tokenizer, _ = make_tokenizer("phi")
    source = (traces / "chat_templates" / TEMPLATE_FILES["phi"]).read_text("utf-8")
    renderer = Renderer(tokenizer, ChatTemplate(source, named_tokens=tokenizer.named_tokens))
    for messages in ([USER, {"role": "tool", "content": "x"}], [USER, call("{}")]):
        with pytest.raises(InvalidRequest, match="leaves out") as caught:
            renderer.render(messages)
        assert caught.value.param == "messages"
    with pytest.raises(InvalidRequest, match="leaves out") as caught:
        renderer.render([USER], [{"name": "f"}])
    assert caught.value.param == "tools"
