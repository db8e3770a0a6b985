"""Whole programs through the whole pipeline: what is found in them, and what is not.

Each source stands for a habit of writing. The rules, their prices and the reader have to agree for
a line here to hold.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.lint.formats.base import Project
from agentkv.lint.run import lint, lint_source
from agentkv.lint.source import Source

RULES = """You are a support agent of a shop for kitchen tools. Answer in the language of the customer.
Be brief and friendly, and never promise a refund that the policy does not allow. Ask for the order number first.
Returns are free for thirty days. Spare parts are sold by phone only. Do not discuss prices of other shops.
If the customer is angry, apologise once and go on. Escalate when a person was hurt by a product."""

BAD: dict[str, tuple[str, str]] = {
    "dataclass config": (
        r"""
from dataclasses import dataclass
import uuid, openai
RULES = '''@RULES@'''
@dataclass
class Ctx:
    trace_id: str
    tenant: str
def run(ctx: Ctx, q: str):
    sys_msg = f"[{ctx.trace_id}] {RULES}"
    return openai.chat.completions.create(model="x", messages=[dict(role="system", content=sys_msg), dict(role="user", content=q)])
""",
        "random-id-in-prefix",
    ),
    "dict update": (
        r"""
import time
from openai import OpenAI
RULES = '''@RULES@'''
client = OpenAI()
def run(q):
    payload = {"model": "gpt-4o", "temperature": 0}
    payload["messages"] = [{"role": "system", "content": "t=" + str(time.time()) + "\n" + RULES}]
    payload["messages"].append({"role": "user", "content": q})
    return client.chat.completions.create(**payload)
""",
        "timestamp-in-prefix",
    ),
    "async gather ctx": (
        r"""
from langchain_openai import ChatOpenAI
from langchain_core.prompts import ChatPromptTemplate
prompt = ChatPromptTemplate.from_messages([("system", '''Customer: {customer_name} ({customer_id})\n@RULES@'''), ("human", "{input}")])
chain = prompt | ChatOpenAI()
def go(c, text): return chain.invoke({"customer_name": c.name, "customer_id": c.id, "input": text})
""",
        "user-data-before-shared",
    ),
    "messages helper": (
        r"""
from datetime import datetime
import litellm
RULES = '''@RULES@'''
def system_message():
    return {"role": "system", "content": f"Today is {datetime.now().strftime('%c')}. " + RULES}
def user_message(t): return {"role": "user", "content": t}
def ask(t):
    return litellm.completion(model="m", messages=[system_message(), user_message(t)])
""",
        "timestamp-in-prefix",
    ),
    "rag": (
        r"""
from openai import OpenAI
client = OpenAI()
def answer(question, retriever):
    docs = retriever.get_relevant_documents(question)
    context = "\n\n".join(d.page_content for d in docs)
    prompt = f'''Context:
{context}

Question: {question}

@RULES@
'''
    return client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": prompt}])
""",
        "context-before-instructions",
    ),
    "template file const": (
        r"""
from string import Template
import os, openai
T = Template('''Process $pid on $host.
@RULES@
''')
def ask(q):
    import socket
    return openai.chat.completions.create(model="m", messages=[{"role": "system", "content": T.substitute(pid=os.getpid(), host=socket.gethostname())}, {"role":"user","content":q}])
""",
        "host-state-in-prefix",
    ),
    "state graph node": (
        r"""
from datetime import datetime, timezone
from langchain_core.messages import SystemMessage
from langgraph.graph import MessagesState
from langchain.chat_models import init_chat_model
SYSTEM_PROMPT = '''@RULES@
System time: {system_time}'''
model = init_chat_model("openai:gpt-4o")
async def call_model(state: MessagesState):
    system = SYSTEM_PROMPT.format(system_time=datetime.now(tz=timezone.utc).isoformat())
    response = await model.ainvoke([{"role": "system", "content": system}, *state["messages"]])
    return {"messages": [response]}
""",
        "timestamp-in-prefix",
    ),
    "sorted missing set": (
        r"""
from openai import OpenAI
TAGS = {"spoons", "pans", "knives"}
RULES = '''@RULES@'''
def ask(q):
    return OpenAI().responses.create(model="gpt-4o", instructions="Tags: " + ", ".join(TAGS) + "\n" + RULES, input=q)
""",
        "set-iteration",
    ),
    "user profile json": (
        r"""
import json
from openai import OpenAI
RULES = '''@RULES@'''
def ask(profile, q):
    return OpenAI().chat.completions.create(model="gpt-4o", messages=[
        {"role": "system", "content": f"Profile: {json.dumps(profile)}\n{RULES}"}, {"role": "user", "content": q}])
""",
        "user-data-before-shared",
    ),
    "subclass property": (
        r"""
from datetime import datetime
import openai
class Base:
    rules = '''@RULES@'''
    @property
    def system_prompt(self): return f"{self.header()}\n{self.rules}"
    def header(self): return ""
    def ask(self, q):
        return openai.chat.completions.create(model="m", messages=[{"role": "system", "content": self.system_prompt}, {"role": "user", "content": q}])
class Timed(Base):
    def header(self): return f"Now: {datetime.now()}"
""",
        "timestamp-in-prefix",
    ),
    "match and walrus": (
        r"""
import random, openai
RULES = '''@RULES@'''
GREET = ["Hi", "Hello", "Hey"]
def ask(q):
    if (g := random.choice(GREET)):
        text = f"Open with {g}. {RULES}"
    return openai.chat.completions.create(model="m", messages=[{"role": "system", "content": text}, {"role": "user", "content": q}])
""",
        "random-content-in-prefix",
    ),
    "history window method": (
        r"""
import openai
RULES = '''@RULES@'''
class Chat:
    def __init__(self):
        self.history = []
        self.window = 12
    def send(self, text):
        self.history.append({"role": "user", "content": text})
        msgs = [{"role": "system", "content": RULES}] + self.history[-self.window:]
        r = openai.chat.completions.create(model="m", messages=msgs)
        self.history.append({"role": "assistant", "content": r.choices[0].message.content})
""",
        "history-front-truncation",
    ),
    "tool desc fstring": (
        r"""
from datetime import date
from openai import OpenAI
def tools():
    return [{"type": "function", "function": {"name": "book", "description": f"Book a table. Today is {date.today()}.", "parameters": {}}}]
def ask(q):
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": '''@RULES@'''}, {"role": "user", "content": q}], tools=tools())
""",
        "dynamic-tool-schema",
    ),
    "agent instr callable": (
        r"""
from datetime import datetime
from agents import Agent
RULES = '''@RULES@'''
def instructions(ctx, agent):
    return f"It is {datetime.now()}. {RULES}"
agent = Agent(name="x", instructions=instructions)
""",
        "timestamp-in-prefix",
    ),
    "dict constant": (
        r"""
from datetime import datetime
from openai import OpenAI
PROMPTS = {"system": '''Now: {now}
@RULES@''', "user": "Question: {q}"}
def ask(q):
    return OpenAI().chat.completions.create(model="m", messages=[
        {"role": "system", "content": PROMPTS["system"].format(now=datetime.now())},
        {"role": "user", "content": PROMPTS["user"].format(q=q)}])
""",
        "timestamp-in-prefix",
    ),
    "locals format": (
        r"""
import time
from openai import OpenAI
T = '''{stamp}
@RULES@'''
def ask(q):
    stamp = time.time()
    system = T.format(**locals())
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": system}, {"role": "user", "content": q}])
""",
        "timestamp-in-prefix",
    ),
    "closure": (
        r"""
import uuid
from openai import OpenAI
RULES = '''@RULES@'''
def make_agent():
    client = OpenAI()
    def system():
        return f"Run {uuid.uuid4()}\n{RULES}"
    def ask(q):
        return client.chat.completions.create(model="m", messages=[{"role": "system", "content": system()}, {"role": "user", "content": q}])
    return ask
""",
        "random-id-in-prefix",
    ),
    "dedent format": (
        r"""
import textwrap
from datetime import datetime
from openai import OpenAI
def ask(q):
    system = textwrap.dedent('''
        It is {now}.
        @RULES@
    ''').strip().format(now=datetime.now().isoformat())
    return OpenAI().responses.create(model="m", instructions=system, input=q)
""",
        "timestamp-in-prefix",
    ),
    "enum": (
        r"""
from enum import Enum
from openai import OpenAI
class P(str, Enum):
    SYSTEM = '''You help {user_name}.
@RULES@'''
def ask(user_name, q):
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": P.SYSTEM.value.format(user_name=user_name)}, {"role": "user", "content": q}])
""",
        "user-data-before-shared",
    ),
    "async stream": (
        r"""
import anthropic
from datetime import datetime, timezone
RULES = '''@RULES@'''
client = anthropic.AsyncAnthropic()
async def ask(q):
    async with client.messages.stream(model="claude", max_tokens=9, system=[{"type": "text", "text": f"UTC {datetime.now(timezone.utc):%H:%M:%S}"}, {"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}], messages=[{"role": "user", "content": q}]) as s:
        async for t in s.text_stream:
            yield t
""",
        "timestamp-in-prefix",
    ),
    "placeholder first": (
        r"""
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
prompt = ChatPromptTemplate.from_messages([
    ("system", "You answer questions about trains."),
    MessagesPlaceholder(variable_name="history"),
    ("human", "When does the train to Bern leave? Please answer with platform and time and nothing else at all, also when it is late."),
    ("ai", "At 10:02 from platform 4. The train has a dining car and places for bicycles; a reservation is not needed on this line, and it stops in Olten only."),
    ("human", "{question}"),
])
""",
        "placeholder-before-static-messages",
    ),
    "star kwargs builder": (
        r"""
import random
from openai import OpenAI
RULES = '''@RULES@'''
def params(q):
    return dict(model="m", messages=[{"role": "system", "content": random.choice(["Hi!", "Hello!"]) + " " + RULES}, {"role": "user", "content": q}])
def ask(q):
    return OpenAI().chat.completions.create(**params(q))
""",
        "random-content-in-prefix",
    ),
    "langgraph prebuilt fn": (
        r"""
from datetime import datetime
from langgraph.prebuilt import create_react_agent
from langchain_core.messages import SystemMessage
RULES = '''@RULES@'''
def prompt(state):
    return [SystemMessage(content=f"Time: {datetime.now()}\n{RULES}")] + state["messages"]
agent = create_react_agent("openai:gpt-4o", tools=[], prompt=prompt)
""",
        "timestamp-in-prefix",
    ),
    "memories": (
        r"""
from openai import OpenAI
RULES = '''@RULES@'''
def ask(store, user_id, q, history):
    memories = store.search(("memories", user_id), query=q)
    text = "\n".join(m.value["text"] for m in memories)
    system = f"Memories:\n{text}\n\n{RULES}"
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": system}, *history, {"role": "user", "content": q}])
""",
        "memory-in-system-prompt",
    ),
    "tool loop filter": (
        r"""
from openai import OpenAI
TOOLS = [{"type": "function", "function": {"name": n}} for n in ("a", "b", "c")]
RULES = '''@RULES@'''
def run(messages, used):
    while True:
        allowed = [t for t in TOOLS if t["function"]["name"] not in used]
        r = OpenAI().chat.completions.create(model="m", tools=allowed, messages=[{"role": "system", "content": RULES}] + messages)
        used.add(r.choices[0].message.tool_calls[0].function.name)
        messages.append(r.choices[0].message)
""",
        "dynamic-tool-set",
    ),
    "ws agents sdk dynamic": (
        r"""
from openai import OpenAI
import os
RULES = '''@RULES@'''
class Session:
    def __init__(self, user): self.user = user; self.turn = 0
    def system(self):
        self.turn += 1
        return f"Turn {self.turn}. Customer {self.user.first_name}.\n" + RULES
    def ask(self, q):
        return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": self.system()}, {"role": "user", "content": q}])
""",
        "counter-in-prefix",
    ),
    "messages insert": (
        r"""
from openai import OpenAI
RULES = '''@RULES@'''
def ask(messages, ctx):
    messages.insert(1, {"role": "system", "content": f"Context: {ctx}"})
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": RULES}, *messages])
""",
        "message-inserted-mid-history",
    ),
    "crewai": (
        r"""
from crewai import Agent
from datetime import date
agent = Agent(role="Planner", goal="Plan trips", backstory=f"Today is {date.today()}. " + '''@RULES@''')
""",
        "date-in-prefix",
    ),
    "partial method": (
        r"""
from functools import partial
from datetime import datetime
from langchain.prompts import ChatPromptTemplate
prompt = ChatPromptTemplate.from_messages([("system", "Time {time}. " + '''@RULES@'''), ("human", "{question}")]).partial(time=lambda: datetime.now().strftime("%H:%M"))
""",
        "partial-variable-callable",
    ),
    "ternary model": (
        r"""
from openai import OpenAI
import random
RULES = '''@RULES@'''
def ask(q, history):
    model = random.choice(["gpt-4o", "gpt-4o-mini"])
    return OpenAI().chat.completions.create(model=model, messages=[{"role": "system", "content": RULES}, *history, {"role": "user", "content": q}])
""",
        "model-varies",
    ),
    "haystack question first": (
        r"""
from haystack.components.builders import PromptBuilder
b = PromptBuilder(template='''Question: {{ question }}
{% for d in documents %}{{ d.content }}
{% endfor %}
@RULES@''')
""",
        "question-before-documents",
    ),
    "summary head": (
        r"""
from openai import OpenAI
RULES = '''@RULES@'''
def ask(summary, recent, q):
    messages = [{"role": "system", "content": f"Summary so far: {summary}\n{RULES}"}] + recent + [{"role": "user", "content": q}]
    return OpenAI().chat.completions.create(model="m", messages=messages)
""",
        "history-summarised-into-head",
    ),
}

GOOD: dict[str, str] = {
    "clock last": r"""
from datetime import datetime
from openai import OpenAI
RULES = '''@RULES@'''
def ask(q, history):
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": RULES}, *history, {"role": "user", "content": f"{q}\n(time: {datetime.now()})"}])
""",
    "logging": r"""
import logging, time, uuid
from openai import OpenAI
RULES = '''@RULES@'''
log = logging.getLogger(__name__)
def ask(q, history):
    rid = uuid.uuid4().hex
    t = time.time()
    log.info("request %s at %s for %s", rid, t, q)
    r = OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": RULES}, *history, {"role": "user", "content": q}], metadata={"rid": rid}, extra_headers={"x-request-id": rid})
    log.info(f"took {time.time() - t}")
    return r
""",
    "env brand": r"""
import os
from openai import OpenAI
RULES = '''@RULES@'''
BRAND = os.environ.get("BRAND", "Acme")
def ask(q, history):
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": f"You work for {BRAND}.\n{RULES}"}, *history, {"role": "user", "content": q}])
""",
    "sorted tools": r"""
from openai import OpenAI
RULES = '''@RULES@'''
async def ask(session, q, history):
    tools = sorted((await session.list_tools()).tools, key=lambda t: t.name)
    specs = [{"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.inputSchema}} for t in tools]
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": RULES}, *history, {"role": "user", "content": q}], tools=specs)
""",
    "http handler": r"""
from datetime import datetime
from fastapi import FastAPI
app = FastAPI()
@app.get("/assistant")
def handler(user: str):
    message = f"Hello {user}, it is {datetime.now()} and the assistant will answer your question soon. Please wait until you are called, and do not close this page."
    return {"message": message, "role": "user"}
""",
    "retry jitter": r"""
import random, time
from openai import OpenAI
RULES = '''@RULES@'''
def ask(q, history):
    for attempt in range(5):
        try:
            return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": RULES}, *history, {"role": "user", "content": q}])
        except Exception as e:
            time.sleep(random.random() * 2 ** attempt)
            print(f"attempt {attempt} failed: {e}")
""",
    "rules then user": r"""
from openai import OpenAI
RULES = '''@RULES@'''
def ask(user, q):
    system = RULES + f"\n\n<customer>\nname: {user.name}\nid: {user.id}\n</customer>"
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": system}, {"role": "user", "content": q}])
""",
    "title history slice": r"""
from openai import OpenAI
client = OpenAI()
def title(history):
    text = "\n".join(m["content"] for m in history[-4:])
    return client.chat.completions.create(model="m", messages=[{"role": "system", "content": "Write a title of five words for this chat."}, {"role": "user", "content": text}])
""",
    "seeded": r"""
import random, openai
RULES = '''@RULES@'''
EX = ["a", "b", "c"]
SHOTS = random.Random(0).sample(EX, 2)
def ask(q):
    return openai.chat.completions.create(model="m", messages=[{"role": "system", "content": "Examples: " + "; ".join(SHOTS) + "\n" + RULES}, {"role": "user", "content": q}])
""",
    "retrieval after": r"""
import openai
RULES = '''@RULES@'''
def ask(question, store):
    docs = store.similarity_search(question)
    ctx = "\n".join(d.page_content for d in docs)
    return openai.chat.completions.create(model="m", messages=[{"role": "system", "content": RULES}, {"role": "user", "content": f"<docs>\n{ctx}\n</docs>\n\nQuestion: {question}"}])
""",
    "few shots const": r"""
from openai import OpenAI
RULES = '''@RULES@'''
SHOTS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello, what is your order number?"}]
def ask(q, history):
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": RULES}, *SHOTS, *history, {"role": "user", "content": q}])
""",
    "cached system": r"""
from functools import lru_cache
from datetime import date
import os
from openai import OpenAI
RULES = '''@RULES@'''
@lru_cache
def system():
    return f"{RULES}\nDeployment {os.environ['REGION']}."
def ask(q, history):
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": system()}, *history, {"role": "user", "content": q}])
""",
    "flags deploy": r"""
from openai import OpenAI
from app.config import settings
RULES = '''@RULES@'''
def ask(q, history):
    system = ("Beta tools are on.\n" if settings.beta else "") + RULES
    return OpenAI().chat.completions.create(model="m", temperature=0.2 if "poem" in q else 0, max_tokens=500, messages=[{"role": "system", "content": system}, *history, {"role": "user", "content": q}])
""",
    "numbers": r"""
from openai import OpenAI
RULES = ["Be kind.", "Be brief.", "Ask first.", "Never guess a price of something that is not in stock at the moment, ask a colleague."]
SYSTEM = "You are a shop assistant who sells bicycles in a small town. Answer politely.\n" + "\n".join(f"{i}. {r}" for i, r in enumerate(RULES, 1))
def ask(q, history):
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": SYSTEM}, *history, {"role": "user", "content": q}])
""",
    "click prompt": r"""
import click
from datetime import datetime
@click.command()
@click.option("--name", prompt=f"Your name ({datetime.now():%H:%M}), as it is written in your passport, with all the middle names you have and no titles")
def main(name):
    '''You are asked for a name.'''
    click.echo(f"Hello {name}, you are now logged in as the assistant of the user and it is {datetime.now()}")
""",
    "tests of prompts": r"""
import pytest
from myapp import build_prompt
def test_prompt():
    text = build_prompt("Ann")
    assert text.startswith("You are the assistant of Ann"), f"the prompt must start with the persona, got {text}"
    assert "now" not in text
""",
    "metrics": r"""
import time
from anthropic import Anthropic
RULES = '''@RULES@'''
def ask(q, history, user_id):
    start = time.perf_counter()
    r = Anthropic().messages.create(model="claude", max_tokens=5, system=[{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}], messages=[*history, {"role": "user", "content": q}], metadata={"user_id": user_id})
    return {"answer": r.content[0].text, "seconds": time.perf_counter() - start, "at": time.time(), "prompt": f"{time.time()} {RULES}"[:20]}
""",
    "date fixed": r"""
from datetime import date
from openai import OpenAI
CUTOFF = date(2024, 6, 1)
RULES = '''@RULES@'''
def ask(q, history):
    return OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": f"Knowledge until {CUTOFF}.\n{RULES}"}, *history, {"role": "user", "content": q}])
""",
    "fixed tool choice": r"""
from openai import OpenAI
from tools import TOOLS
RULES = '''@RULES@'''
def ask(q, history):
    return OpenAI().chat.completions.create(model="m", tools=TOOLS, tool_choice="auto", parallel_tool_calls=False, messages=[{"role": "system", "content": RULES}, *history, {"role": "user", "content": q}])
""",
    "email template": r"""
from string import Template
MAIL = Template('''Dear $name,
your order $order from $date has been shipped. You will receive it within the next three days. If you have questions, answer this mail
or call us. Please do not send the parcel back before you have spoken to us; you must keep the box.
Kind regards''')
def mail(name, order, date): return MAIL.substitute(name=name, order=order, date=date)
INSTRUCTIONS_FOR_AGENTS = "none"
""",
}


def found(code: str) -> dict[str, str]:
    """Names of the rules that a source breaks, with the severity."""
    source = Source("app.py", code.strip().replace("@RULES@", RULES) + "\n")
    result = lint_source(source, project=Project(Path("/nowhere")))
    return {f.name: f.severity for f in result.findings}


@pytest.mark.parametrize("name", BAD)
def test_found(name: str) -> None:
    code, rule = BAD[name]
    assert rule in found(code)


@pytest.mark.parametrize("name", GOOD)
def test_not_found(name: str) -> None:
    assert not {n for n, severity in found(GOOD[name]).items() if severity != "info"}


def test_of_two_packages_with_one_name_the_nearest_is_meant(tmp_path: Path) -> None:
    """Below one root, one service's prompt has a clock and the other's has none."""
    call = (
        "from openai import OpenAI\nfrom app.prompts import build\n\n\ndef ask(q):\n"
        "    return OpenAI().chat.completions.create(model='m', messages=[\n"
        "        {'role': 'system', 'content': build()}, {'role': 'user', 'content': q}])\n"
    )
    clock = (
        f'import time\nR = """{RULES}"""\n\n\ndef build():\n    return f"{{time.time()}} {{R}}"\n'
    )
    plain = f'R = """{RULES}"""\n\n\ndef build():\n    return R\n'
    files = {
        "app/__init__.py": "",
        "app/prompts.py": clock,
        "app_caller.py": call,
        "shop/src/app/__init__.py": "",
        "shop/src/app/prompts.py": plain,
        "shop/scripts/run.py": call,
        "desk/app/__init__.py": "",
        "desk/app/prompts.py": clock,
        "desk/jobs/nightly/run.py": call,
        "desk/web/run.py": call.replace("app.prompts", "app.prompt"),
        "far/services/one/code/tool/__init__.py": "",
        "far/services/one/code/tool/prompts.py": clock,
        "far/services/one/main/run.py": call.replace("app.prompts", "tool.prompts"),
        "near/tool/__init__.py": "",
        "near/tool/prompts.py": plain,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    report = lint(tmp_path, isolated=True, cache=False, jobs=1)
    found = {Path(f.path).relative_to(tmp_path).as_posix() for f in report.findings}
    # A clock is reported where it is written, of the builders that are called.
    assert found == {
        "app/prompts.py",
        "desk/app/prompts.py",
        "far/services/one/code/tool/prompts.py",
    }
