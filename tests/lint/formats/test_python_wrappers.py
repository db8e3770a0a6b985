"""Prompts that another module's wrapper sends, and texts that another module holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.lint.config import Config
from agentkv.lint.result import Report
from agentkv.lint.run import lint_paths

RULES = (
    "You are the support agent of a shop that sells kitchen goods. Answer in five sentences.\n"
    "Never promise a refund before the tool has answered. Use the metric system, and write\n"
    "prices with two decimals and the currency. Delivery takes two to four days within the\n"
    "country and up to ten days abroad. Do not speak of other customers or of other shops.\n"
    "Opened food cannot be returned; anything else can, within thirty days, if it is unused.\n"
)
CLIENT = """\
from openai import AsyncOpenAI


class LLM:
    def __init__(self, model: str = "gpt-4o-mini") -> None:
        self.client = AsyncOpenAI()
        self.model = model

    async def ask(self, system: str, messages, **more) -> str:
        reply = await self.client.chat.completions.create(
            model=self.model, messages=[{"role": "system", "content": system}, *messages], **more
        )
        return reply.choices[0].message.content or ""
"""
HEAD = "import time\nfrom client import LLM\nfrom texts import RULES\n"


def run(root: Path, only: str | None = None, **files: str) -> Report:
    files.setdefault("client", CLIENT)
    files.setdefault("texts", f'RULES = """{RULES}"""\n')
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)
    paths = [root / f"{only}.py"] if only else [root]
    return lint_paths(paths, Config(cache=False, severity="info", jobs=1), root=root)


def found(report: Report) -> list[tuple[str, int, str]]:
    return [(Path(f.path).name, f.line, f.code) for f in report.findings]


@pytest.mark.parametrize("only", [None, "app"])
@pytest.mark.parametrize(
    ("made", "call"),
    [
        ("llm = LLM()", "llm.ask"),
        ("", "LLM().ask"),
    ],
)
def test_wrapper_and_text_of_other_modules(
    made: str, call: str, only: str | None, tmp_path: Path
) -> None:
    app = f"""{HEAD}{made}
async def answer(q):
    system = f"at {{time.time()}} {{RULES}}"
    return await {call}(system, [{{"role": "user", "content": q}}])
"""
    assert found(run(tmp_path, only, app=app)) == [("app.py", 6, "KV101")]


def test_user_data_in_front_of_a_text_of_another_module(tmp_path: Path) -> None:
    app = f"""{HEAD}import json
llm = LLM()
async def answer(profile, q):
    return await llm.ask("Profile: " + json.dumps(profile) + RULES, [{{"role": "user", "content": q}}])
"""
    assert found(run(tmp_path, app=app)) == [("app.py", 7, "KV202")]


SHARED = """\
from datetime import datetime
from langchain_core.messages import SystemMessage
from langchain_openai import ChatOpenAI
from texts import RULES
model = ChatOpenAI(model="gpt-4o")
def good(state):
    return model.invoke([SystemMessage(f"{RULES} Answer now."), *state["messages"]])
def bad(state):
    return model.invoke([SystemMessage(f"{datetime.now()} {RULES}"), *state["messages"]])
"""


@pytest.mark.parametrize("only", [None, "app"])
def test_two_prompts_with_one_text_of_another_module(only: str | None, tmp_path: Path) -> None:
    assert found(run(tmp_path, only, app=SHARED)) == [("app.py", 9, "KV101")]


def test_each_prompt_with_a_text_of_this_module(tmp_path: Path) -> None:
    app = f"""\
import time
from openai import OpenAI
client = OpenAI()
TEXT = '''{RULES}'''
def ask(q, system):
    return None
def one(q):
    return client.chat.completions.create(model="m", messages=[{{"role": "system", "content": str(time.time()) + TEXT}}, {{"role": "user", "content": q}}])
def two(q):
    return client.chat.completions.create(model="m", messages=[{{"role": "system", "content": time.ctime() + TEXT}}, {{"role": "user", "content": q}}])
"""
    lines = [line for _, line, code in found(run(tmp_path, app=app)) if code == "KV101"]
    assert lines == [13, 15]


@pytest.mark.parametrize(
    "llm", ["from client import LLM\n", CLIENT], ids=["other module", "this module"]
)
def test_clock_in_the_last_message_given_to_a_wrapper(llm: str, tmp_path: Path) -> None:
    app = f"""import time
from texts import RULES
{llm}
llm = LLM()
HISTORY = {{}}
async def answer(body):
    history = HISTORY.setdefault(body.thread, [])
    history.append({{"role": "user", "content": f"{{body.text}} (now: {{time.time()}})"}})
    return await llm.ask(RULES, history)
"""
    report = run(tmp_path, app=app)
    assert report.prompts
    assert found(report) == []


def test_few_tokens_in_front_of_a_conversation_are_not_told(tmp_path: Path) -> None:
    app = SHARED.replace("{datetime.now()} {RULES}", "{RULES} It is {datetime.now()}.")
    (finding,) = run(tmp_path, app=app).findings
    assert "precedes the conversation" in finding.message
    assert "static tokens" not in finding.message


def test_a_set_is_called_a_set(tmp_path: Path) -> None:
    app = """\
from langchain_openai import ChatOpenAI
def find(name: str) -> str: ...
def stock(name: str) -> str: ...
TOOLS = {find, stock}
model = ChatOpenAI(model="gpt-4o")
def call(state):
    return model.bind_tools(list(TOOLS)).invoke(state["messages"])
"""
    (finding,) = [f for f in run(tmp_path, app=app).findings if f.code == "KV501"]
    assert "is not certain (a set)" in finding.message
