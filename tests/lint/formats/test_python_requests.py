"""What is sent beside the text: tools, settings, markers, and what is done to the history."""

from __future__ import annotations

import pytest

from agentkv.lint.template import Request, Text
from tests.lint.formats.python_help import RULES, only, read, request, tools

TOP = f'''
import asyncio, json, os, re, uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from openai import OpenAI
client = OpenAI()
RULES = "{RULES}"
SYSTEM = {{"role": "system", "content": RULES}}
TOOLS = [{{"type": "function", "function": {{"name": "a", "description": "Does a."}}}}]
'''


def sent(body: str, params: str = "q") -> Request:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return request(read(TOP + f"def ask({params}):\n{lines}")[0])


def create(extra: str = "", messages: str = "[SYSTEM, {'role': 'user', 'content': q}]") -> str:
    return f"return client.chat.completions.create(model='m', messages={messages}{extra})"


def test_plain() -> None:
    found = sent(create(", tools=TOOLS"))
    assert (found.api, found.model, found.fan_out, found.in_loop) == ("openai", "m", False, False)
    use = tools(found)
    assert use.level == "build" and not use.filtered and not use.dynamic_schema
    assert not found.history and not found.markers


@pytest.mark.parametrize(
    ("listed", "params", "filtered", "dynamic", "traits"),
    [
        ("[t for t in TOOLS if user.can(t)]", "q, user", True, False, set()),
        ("[t for t in TOOLS if t['type'] == 'function']", "q", False, False, set()),
        ("[t for t in TOOLS if os.environ.get('X')]", "q", False, False, set()),
        ("TOOLS if user.is_admin else []", "q, user", True, False, set()),
        ("list({'a', 'b'})", "q", False, False, {"set_order"}),
        ("set(TOOLS)", "q", False, False, {"set_order"}),
        ("session.list_tools()", "q, session", False, False, {"listing"}),
        ("sorted(session.list_tools(), key=lambda t: t.name)", "q, session", False, False, set()),
        ("[{'name': 'a', 'description': f'Now {datetime.now()}'}]", "q", False, True, {"clock"}),
        (
            "[{'name': 'a', 'input_schema': {'properties': {'id': {'enum': ids}}}}]",
            "q, ids",
            False,
            True,
            set(),
        ),
        ("[{'name': 'a', 'description': 'Fixed.'}]", "q", False, False, set()),
        ("select_tools(q)", "q", True, False, set()),
    ],
)
def test_tools(listed: str, params: str, filtered: bool, dynamic: bool, traits: set[str]) -> None:
    found = tools(sent(create(f", tools={listed}"), params))
    assert (found.filtered, found.dynamic_schema) == (filtered, dynamic), found
    assert traits <= found.traits
    if not traits:
        assert not found.traits & {"set_order", "listing", "clock"}


def test_tools_appended_under_a_condition() -> None:
    found = sent(
        "tools = list(TOOLS)\nif user.is_admin:\n    tools.append({'name': 'b'})\n"
        + create(", tools=tools"),
        "q, user",
    )
    assert tools(found).filtered


@pytest.mark.parametrize(
    ("extra", "name", "level", "traits"),
    [
        (", prompt_cache_key=str(uuid.uuid4())", "prompt_cache_key", "call", {"random_id"}),
        (", prompt_cache_key='docs-v1'", "prompt_cache_key", "build", set()),
        (", extra_body={'cache_salt': uuid.uuid4().hex}", "cache_salt", "call", {"random_id"}),
        (", extra_body={'cache_salt': tenant_id}", "cache_salt", "tenant", set()),
        (", tool_choice='required' if need else 'auto'", "tool_choice", "unknown", {"conditional"}),
        (", tool_choice='auto'", "tool_choice", "build", set()),
        (", response_format={'type': 'json_object'}", "response_format", "build", set()),
        (
            ", thinking={'type': 'enabled'} if hard else None",
            "thinking",
            "unknown",
            {"conditional"},
        ),
    ],
)
def test_settings(extra: str, name: str, level: str, traits: set[str]) -> None:
    found = sent(create(extra), "q, tenant_id, need, hard")
    (setting,) = [s for s in found.settings if s.name == name]
    assert setting.level == level and traits <= setting.traits, setting


def test_a_model_that_varies() -> None:
    code = "return client.chat.completions.create(model='big' if hard else 'small', messages=[SYSTEM, {'role': 'user', 'content': q}])"
    (setting,) = [s for s in sent(code, "q, hard").settings if s.name == "model"]
    assert "conditional" in setting.traits


HISTORY = [
    # body, kinds of operations
    (create(messages="[SYSTEM] + history[-10:]"), ["front_truncation"]),
    ("recent = history[-N:]\n" + create(messages="[SYSTEM, *recent]"), ["front_truncation"]),
    (
        "if len(history) > 10:\n    history = history[-10:]\n"
        + create(messages="[SYSTEM, *history]"),
        ["front_truncation"],
    ),
    (
        "if len(history) > 60:\n    history = history[-20:]\n"
        + create(messages="[SYSTEM, *history]"),
        [],
    ),
    (
        "if count_tokens(history) > LIMIT:\n    history = history[-20:]\n"
        + create(messages="[SYSTEM, *history]"),
        [],
    ),
    ("log(history[-5:])\n" + create(messages="[SYSTEM, *history]"), []),
    ("title = history[-1]\n" + create(messages="[SYSTEM, *history]"), []),
    ("history.pop(0)\n" + create(messages="[SYSTEM, *history]"), ["front_truncation"]),
    ("del history[0]\n" + create(messages="[SYSTEM, *history]"), ["front_truncation"]),
    (
        "history = history[:2] + history[-8:]\n" + create(messages="[SYSTEM, *history]"),
        ["mid_trim"],
    ),
    (
        "history[0]['content'] = f'Now {datetime.now()}'\n" + create(messages="history"),
        ["system_mutated"],
    ),
    (
        "history.insert(1, {'role': 'system', 'content': 'Reminder: be kind.'})\n"
        + create(messages="history"),
        ["inserted_mid"],
    ),
    (
        "history.insert(0, {'role': 'system', 'content': f'Now {datetime.now()}'})\n"
        + create(messages="history"),
        ["inserted_front"],
    ),
    ("history.append({'role': 'user', 'content': q})\n" + create(messages="history"), []),
    (
        "for m in history[:-3]:\n    if m['role'] == 'tool':\n        m['content'] = '[cleared]'\n"
        + create(messages="history"),
        ["edited_in_place"],
    ),
    ("history[2]['content'] = ''\n" + create(messages="history"), ["edited_in_place"]),
    (
        "out = [{'role': m['role'], 'content': re.sub(r'<think>.*?</think>', '', m['content'])} for m in history]\n"
        + create(messages="out"),
        ["reasoning_stripped"],
    ),
    (
        "messages = [{'role': 'system', 'content': f'So far: {summary}. {RULES}'}] + history\n"
        + create(messages="messages"),
        ["summarised_into_head"],
    ),
    (
        "text = open('prompt.txt').read()\n"
        + create(messages="[{'role': 'system', 'content': text + RULES}, *history]"),
        ["rebuilt_each_call"],
    ),
    (
        "messages = [SYSTEM]\nmessages.insert(0, {'role': 'system', 'content': 'Be kind.'})\n"
        + create(messages="messages + history"),
        [],
    ),
]


@pytest.mark.parametrize(("body", "kinds"), HISTORY)
def test_history(body: str, kinds: list[str]) -> None:
    found = sent(body, "q, history, summary=''")
    assert [op.kind for op in found.history] == kinds, found.history
    assert all(len(op.slice) > 0 for op in found.history)


def test_a_system_message_rewritten_in_a_loop() -> None:
    body = """
messages = [{"role": "system", "content": RULES}]
while True:
    messages[0]["content"] = f"Now {datetime.now()}. {RULES}"
    messages.append(client.chat.completions.create(model="m", messages=messages))
"""
    found = sent(body)
    (op,) = found.history
    assert op.kind == "system_mutated" and op.in_loop


def test_a_system_message_set_once_before_the_loop() -> None:
    body = """
messages = [{"role": "system", "content": ""}]
messages[0]["content"] = f"For {q}. {RULES}"
while True:
    messages.append(client.chat.completions.create(model="m", messages=messages))
"""
    found = sent(body)
    assert not found.history
    assert found.template is not None
    assert "For " in [p.value for p in found.template.parts[0].pieces if isinstance(p, Text)]


def test_markers() -> None:
    code = """
import anthropic
client = anthropic.Anthropic()
def ask(q, history):
    return client.messages.create(model="claude", system=[
        {"type": "text", "text": "You are helpful and kind.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "text", "text": f"User {q}"}],
        tools=[{"name": "a", "cache_control": {"type": "ephemeral"}}],
        messages=[*history, {"role": "user", "content": [{"type": "text", "text": q, "cache_control": {"type": "ephemeral"}}]}])
"""
    document, source = read(code)
    found = request(document)
    assert len(found.markers) == 3 and found.marker_ttls == ("5m", "1h", "5m")
    assert all("ephemeral" in source[m] for m in found.markers)
    template = only(document)
    assert template.parts[0].marker is not None and template.parts[-1].marker is not None
    # Blocks of a system text are parts of their own: a marker says where a prefix ends.
    assert [p.role for p in template.parts] == ["system", "system", "unknown", "user"]


FAN = [
    ("return await asyncio.gather(*[one(x) for x in xs])", True),
    ("await one(xs[0])\n    return await asyncio.gather(*[one(x) for x in xs[1:]])", False),
    ("return [await one(x) for x in xs]", False),
    ("with ThreadPoolExecutor() as pool:\n        return list(pool.map(one, xs))", True),
    ("with ThreadPoolExecutor() as pool:\n        return [pool.submit(one, x) for x in xs]", True),
]


@pytest.mark.parametrize(("body", "fan"), FAN)
def test_fan_out(body: str, fan: bool) -> None:
    code = (
        TOP
        + f"""
async def one(q):
    return await client.chat.completions.create(model="m", messages=[SYSTEM, {{"role": "user", "content": q}}])

async def many(xs):
    {body}
"""
    )
    assert request(read(code)[0]).fan_out is fan


def test_messages_of_the_caller_alone_are_no_template() -> None:
    document, _ = read(TOP + f"def ask(messages):\n    {create(messages='messages')}\n")
    assert document.templates == () and request(document).template is not None


def test_fan_out_at_the_call() -> None:
    body = "return await asyncio.gather(*(client.chat.completions.create(model='m', messages=[SYSTEM, {'role': 'user', 'content': x}]) for x in xs))"
    assert request(read(TOP + f"async def ask(xs):\n    {body}\n")[0]).fan_out


def test_a_request_in_a_loop() -> None:
    body = "for x in xs:\n    client.chat.completions.create(model='m', messages=[SYSTEM, {'role': 'user', 'content': x}])"
    assert sent(body, "xs").in_loop


def test_dumped_tool_arguments() -> None:
    body = """
messages.append({"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "a", "arguments": json.dumps(json.loads(call.arguments))}}]})
""" + create(messages="messages")
    assert [op.kind for op in sent(body, "messages, call").history] == ["reserialised"]


def test_a_passed_setting_is_not_judged_by_what_holds_it() -> None:
    """`request["tool_choice"]` is a setting of the caller's, not a part of a question."""
    code = """
    from copy import deepcopy

    from openai import OpenAI

    class Runner:
        def __init__(self, request):
            self.request = dict(request)
            if "tool_choice" in self.request:
                self.request["tool_choice"] = deepcopy(self.request["tool_choice"])

        def run(self):
            request = {**self.request, "input": [{"role": "user", "content": "Hi"}]}
            return OpenAI().responses.create(tool_choice=request["tool_choice"], **request)


    def ask(messages, options, question):
        return OpenAI().chat.completions.create(
            model="gpt-5",
            messages=messages,
            tool_choice=question["tool_choice"],
            reasoning_effort=question.effort,
            parallel_tool_calls="none" if len(question.text) < 9 else "auto",
            prompt_cache_key=question["session_id"],
        )
    """
    document, _ = read(code)
    levels = {s.name: s.level for r in document.requests for s in r.settings}
    assert levels["tool_choice"] == "unknown" and levels["reasoning_effort"] == "unknown"
    assert levels["parallel_tool_calls"] == "turn"
    assert levels["prompt_cache_key"] == "session"
