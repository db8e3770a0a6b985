"""Where prompts are found in Python, and how their messages come out."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.lint.template import Hole, Text
from tests.lint.formats.python_help import (
    RULES,
    hole,
    holes,
    inside,
    only,
    project,
    read,
    request,
    shape,
)

SDK = "from openai import OpenAI\nclient = OpenAI()\n"

BUILDS = {
    "f-string": 'system = f"Hi {name}. {RULES}"',
    "format": 'system = "Hi {name}. {rules}".format(name=name, rules=RULES)',
    "positional format": 'system = "Hi {}. {}".format(name, RULES)',
    "format_map": 'system = "Hi {name}. {rules}".format_map({"name": name, "rules": RULES})',
    "percent": 'system = "Hi %s. %s" % (name, RULES)',
    "named percent": 'system = "Hi %(name)s. %(r)s" % {"name": name, "r": RULES}',
    "plus": 'system = "Hi " + name + ". " + RULES',
    "augmented": 'system = "Hi "\nsystem += name\nsystem += ". "\nsystem += RULES',
    "join": 'system = "".join(["Hi ", name, ". ", RULES])',
    "append then join": 'parts = ["Hi "]\nparts.append(name)\nparts.append(". ")\nparts.extend([RULES])\nsystem = "".join(parts)',
    "string.Template": 'system = Template("Hi $name. ${rules}").substitute(name=name, rules=RULES)',
    "dedent": 'system = textwrap.dedent(f"""Hi {name}. {RULES}""")',
    "concatenated": 'system = (f"Hi {name}. "\n          f"{RULES}")',
    "replace": 'system = "Hi <NAME>. <RULES>".replace("<NAME>", name).replace("<RULES>", RULES)',
    "jinja": 'system = jinja2.Template("Hi {{ name }}. {{ rules }}").render(name=name, rules=RULES)',
    "environment": 'system = Environment().from_string("Hi {{ name }}. {{ rules }}").render({"name": name, "rules": RULES})',
    "format of a constant": "system = GREETING.format(name=name, rules=RULES)",
    "list display plus": 'parts = ["Hi ", name]\nparts += [". ", RULES]\nsystem = "".join(parts)',
    "helper": "system = build(name)",
    "method": "system = Builder().build(name)",
}


@pytest.mark.parametrize("how", BUILDS)
def test_a_built_system_prompt(how: str) -> None:
    body = "".join(f"    {line}\n" for line in BUILDS[how].splitlines())
    code = (
        "import jinja2, textwrap\nfrom jinja2 import Environment\nfrom string import Template\n"
        + SDK
        + f'RULES = "{RULES}"\nGREETING = "Hi {{name}}. {{rules}}"\n'
        + 'def build(who):\n    return f"Hi {who}. {RULES}"\n'
        + 'class Builder:\n    def build(self, who):\n        return f"Hi {who}. {RULES}"\n'
        + f"def ask(name, q):\n{body}"
        + "    return client.chat.completions.create(model='m', messages=["
        + "{'role': 'system', 'content': system}, {'role': 'user', 'content': q}])\n"
    )
    document, source = read(code)
    templates = [t for t in document.templates if holes(t)]
    assert len(templates) == 1
    system, user = templates[0].parts
    assert (system.role, user.role) == ("system", "user")
    said = []
    for piece in system.pieces:
        if isinstance(piece, Text):
            said.append(piece.value)
        elif piece.inner:
            said += [p.value for p in piece.inner if isinstance(p, Text)]
        else:
            said.append("NAME")
    assert "".join(said) == f"Hi NAME. {RULES}"
    name = next(p for p in system.pieces if isinstance(p, Hole) and not p.inner)
    assert name.level == "user"
    assert (
        name.slice is None
        or "NAME" in source[name.slice].upper()
        or source[name.slice] in ("{}", "%s", "{who}", "who")
    )
    assert request(document).template == templates[0]


APIS = {
    "openai": ("client.chat.completions.create(model='m', messages=MSGS)", "openai"),
    "openai raw": (
        "client.chat.completions.with_raw_response.create(model='m', messages=MSGS)",
        "openai",
    ),
    "openai beta": ("client.beta.chat.completions.parse(model='m', messages=MSGS)", "openai"),
    "openai old": ("openai.ChatCompletion.create(model='m', messages=MSGS)", "openai"),
    "async": ("asyncio.run(client.chat.completions.create(model='m', messages=MSGS))", "openai"),
    "responses": ("client.responses.create(model='m', instructions=SYSTEM, input=USER)", "openai"),
    "responses list": ("client.responses.create(model='m', input=MSGS)", "openai"),
    "anthropic": (
        "client.messages.create(model='m', max_tokens=9, system=SYSTEM, messages=[USERMSG])",
        "anthropic",
    ),
    "anthropic blocks": (
        "client.messages.create(model='m', system=[{'type': 'text', 'text': SYSTEM}], messages=[USERMSG])",
        "anthropic",
    ),
    "anthropic stream": (
        "client.messages.stream(model='m', system=SYSTEM, messages=[USERMSG])",
        "anthropic",
    ),
    "litellm": ("litellm.completion(model='m', messages=MSGS)", "litellm"),
    "litellm from": ("acompletion(model='m', messages=MSGS)", "litellm"),
    "ollama": ("ollama.chat(model='m', messages=MSGS)", "ollama"),
    "ollama generate": ("ollama.generate(model='m', system=SYSTEM, prompt=USER)", "ollama"),
    "bedrock": (
        "rt.converse(modelId='m', system=[{'text': SYSTEM}], messages=[{'role': 'user', 'content': [{'text': USER}]}])",
        "bedrock",
    ),
    "bedrock body": (
        "rt.invoke_model(modelId='m', body=json.dumps({'system': SYSTEM, 'messages': [USERMSG]}))",
        "bedrock",
    ),
    "gemini": (
        "client.models.generate_content(model='m', contents=USER, config=types.GenerateContentConfig(system_instruction=SYSTEM))",
        "gemini",
    ),
    "gemini dict": (
        "client.models.generate_content(model='m', contents=USER, config={'system_instruction': SYSTEM})",
        "gemini",
    ),
    "langchain": (
        "llm.invoke([SystemMessage(content=SYSTEM), HumanMessage(content=USER)])",
        "langchain",
    ),
    "langchain tuples": ("llm.invoke([('system', SYSTEM), ('human', USER)])", "langchain"),
    "http": ("requests.post(url, json={'model': 'm', 'messages': MSGS})", "unknown"),
    "own wrapper": ("self_made(messages=MSGS)", "unknown"),
    "spread": ("client.chat.completions.create(**{'model': 'm', 'messages': MSGS})", "openai"),
    "vllm": ("engine.chat(messages=MSGS)", "unknown"),
}


@pytest.mark.parametrize("api", APIS)
def test_an_api_call(api: str) -> None:
    call, name = APIS[api]
    call = (
        call.replace("USERMSG", "{'role': 'user', 'content': USER}")
        .replace(
            "MSGS", "[{'role': 'system', 'content': SYSTEM}, {'role': 'user', 'content': USER}]"
        )
        .replace("SYSTEM", "f'Now {now}. ' + RULES")
        .replace("USER", "'Please answer this: ' + question")
    )
    code = f"""
import json, asyncio, litellm, ollama, openai, requests
from datetime import datetime
from google.genai import types
from langchain_core.messages import SystemMessage, HumanMessage
from litellm import acompletion
RULES = "{RULES}"
def ask(client, llm, rt, engine, url, question):
    now = datetime.now()
    return {call}
"""
    document, _ = read(code)
    template = next(t for t in document.templates if holes(t))
    assert [p.role for p in template.parts] == ["system", "user"]
    assert "clock" in hole(template, "now").traits
    assert hole(template, "question").level == "turn"
    found = request(document)
    assert found.api == name and found.template == template


def test_messages_put_together_step_by_step() -> None:
    code = (
        SDK
        + f"""
def ask(history, name, q):
    messages = [{{"role": "system", "content": f"You are the assistant of {{name}}. {RULES}"}}]
    messages.extend(history)
    messages += [{{"role": "user", "content": "Example question please"}}]
    messages.append({{"role": "user", "content": q}})
    return client.chat.completions.create(model="m", messages=messages)
"""
    )
    template = only(read(code)[0])
    assert [(p.role, p.placeholder) for p in template.parts] == [
        ("system", False),
        ("unknown", True),
        ("user", False),
        ("user", False),
    ]
    assert "history" in template.parts[1].pieces[0].traits  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("messages", "followed"),
    [
        ("[{'role': 'system', 'content': S}] + history", True),
        ("[{'role': 'system', 'content': S}, *history]", True),
        ("[{'role': 'system', 'content': S}, *history, {'role': 'user', 'content': q}]", False),
        ("[{'role': 'system', 'content': S}, {'role': 'user', 'content': q}]", False),
    ],
)
def test_followed_by_a_history(messages: str, followed: bool) -> None:
    code = (
        SDK
        + f"S = '{RULES.replace(chr(39), '')}'\ndef ask(history, q):\n    return client.chat.completions.create(messages={messages})\n"
    )
    assert only(read(code)[0]).followed is followed


def test_an_agent_loop_follows_its_prompt() -> None:
    code = (
        SDK
        + f'''
def run(goal):
    messages = [{{"role": "system", "content": "{RULES}"}}, {{"role": "user", "content": goal}}]
    while True:
        reply = client.chat.completions.create(model="m", messages=messages)
        messages.append(reply.choices[0].message)
'''
    )
    document, _ = read(code)
    assert only(document).followed and request(document).in_loop


def test_a_wrapper_of_the_project() -> None:
    code = (
        SDK
        + f"""
def llm_call(system, user):
    return client.chat.completions.create(model="m", messages=[
        {{"role": "system", "content": system}}, {{"role": "user", "content": user}}])

def grade(user_name, answer):
    return llm_call(f"You grade answers for {{user_name}}. {RULES}", f"Grade this answer: {{answer}}")

def title(text):
    return llm_call("You write short titles for texts. Be brief.", text)
"""
    )
    document, source = read(code)
    assert [[p.role for p in t.parts] for t in document.templates] == [["system", "user"]] * 2
    graded = document.templates[0]
    assert shape(graded.parts[0]) == f"You grade answers for {{user_name}}. {RULES}"
    assert shape(graded.parts[1]) == "Grade this answer: {answer}"
    assert source[graded.parts[0].pieces[1].slice] == "{user_name}"  # type: ignore[index]


def test_a_wrapper_class() -> None:
    code = (
        SDK
        + f"""
from datetime import datetime
class Agent:
    def __init__(self, system_prompt, model="m"):
        self.system_prompt = system_prompt
        self.model = model

    def run(self, messages):
        return client.chat.completions.create(model=self.model, messages=[
            {{"role": "system", "content": self.system_prompt}}, *messages])

def main():
    agent = Agent(system_prompt=f"It is {{datetime.now()}}. {RULES}")
    agent.run([])
"""
    )
    template = only(read(code)[0])
    assert template.followed and template.parts[0].role == "system"
    assert "clock" in holes(template)[0].traits


def test_a_constant_formatted_elsewhere_in_the_module() -> None:
    code = f'''
from datetime import datetime
SYSTEM_PROMPT = """It is {{now}}.
{RULES}
"""
def build():
    return SYSTEM_PROMPT.format(now=datetime.now())
'''
    template = only(read(code)[0])
    found = hole(template, "now")
    assert template.syntax == "format" and template.writable
    assert found.known and "clock" in found.traits and found.slice is not None


def test_a_constant_formatted_in_another_module(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/prompts.py": f'SYSTEM_PROMPT = """For {{who}} at {{x}}.\n{RULES}\n"""\n',
        "pkg/agent.py": """
            import time
            from openai import OpenAI
            from .prompts import SYSTEM_PROMPT
            client = OpenAI()
            def ask(q, history):
                text = SYSTEM_PROMPT.format(who="Acme", x=time.time())
                return client.chat.completions.create(messages=[{"role": "system", "content": text}, *history])
        """,
    }
    found = project(tmp_path, files)
    template = only(found["pkg/prompts.py"][0])
    assert "clock" in hole(template, "x").traits and hole(template, "x").known
    assert template.followed and template.writable
    # The module that sends it has a request, and no second template for the same text.
    assert found["pkg/agent.py"][0].templates == ()
    sent = request(found["pkg/agent.py"][0])
    assert sent.template is not None and sent.template.parts[0].pieces[0].slice is None


def test_a_helper_in_another_module(tmp_path: Path) -> None:
    files = {
        "clock.py": "from datetime import datetime\ndef stamp():\n    return datetime.now().isoformat()\n",
        "app.py": f"""
            from openai import OpenAI
            from clock import stamp
            client = OpenAI()
            def ask(q):
                return client.chat.completions.create(messages=[
                    {{"role": "system", "content": f"Now {{stamp()}}. {RULES}"}}, {{"role": "user", "content": q}}])
        """,
    }
    template = only(project(tmp_path, files)["app.py"][0])
    assert {"clock", "via_helper"} <= holes(template)[0].traits


def test_a_wrapper_in_another_module(tmp_path: Path) -> None:
    files = {
        "llm.py": """
            from openai import OpenAI
            client = OpenAI()
            def ask(prompt):
                return client.chat.completions.create(messages=[{"role": "user", "content": prompt}])
        """,
        "use.py": """
            import llm
            def run(user_name, text):
                return llm.ask(f"You are helping {user_name}. Summarize the following text in three lines: {text}")
        """,
    }
    found = project(tmp_path, files)
    template = only(found["use.py"][0])
    assert template.parts[0].role == "user" and [h.name for h in holes(template)] == [
        "user_name",
        "text",
    ]
    assert found["llm.py"][0].templates == ()


def test_only_one_template_for_one_text() -> None:
    code = (
        SDK
        + f'''
SYSTEM_PROMPT = "{RULES} Mind {{brand}}."
def a(brand):
    prompt = SYSTEM_PROMPT.format(brand=brand)
    return client.chat.completions.create(messages=[{{"role": "system", "content": prompt}}])
def b(brand):
    return client.chat.completions.create(messages=[{{"role": "system", "content": SYSTEM_PROMPT.format(brand=brand)}}])
'''
    )
    assert len(read(code)[0].templates) == 1


def test_a_constant_that_is_sent_as_it_stands_has_no_holes() -> None:
    code = (
        SDK
        + f'''
SYSTEM_PROMPT = "{RULES} Write {{date}} where a date goes."
def a(q):
    return client.chat.completions.create(messages=[{{"role": "system", "content": SYSTEM_PROMPT}}, {{"role": "user", "content": q}}])
'''
    )
    template = only(read(code)[0])
    assert not [h for h in holes(template) if h.name == "date"]


def test_constants_by_their_names_and_words() -> None:
    code = '''
TRIAGE_PROMPT = """You are {full_name}'s executive assistant.
{background}
Decide what to do with this e-mail: {email}"""
'''
    template = only(read(code)[0])
    assert [h.name for h in holes(template)] == ["full_name", "background", "email"]
    assert template.name == "TRIAGE_PROMPT"


def test_a_prompt_that_a_function_returns() -> None:
    code = '''
def summary_prompt(query, context):
    """Make the prompt."""
    return f"""{context}
Using the above information, answer the following question in detail: "{query}".
You MUST write in markdown and cite your sources."""
'''
    template = only(read(code)[0])
    assert [h.name for h in holes(template)] == ["context", "query"]


def test_a_prompt_in_a_class_attribute() -> None:
    code = '''
class EditBlockPrompts:
    main_system = """Act as an expert software developer.
Always use best practices when coding.
{final_reminders}
"""
'''
    template = only(read(code)[0])
    assert template.parts[0].role == "system" and [h.name for h in holes(template)] == [
        "final_reminders"
    ]


def test_a_section_of_a_conditional_statement() -> None:
    code = (
        SDK
        + f'''
def ask(user, beta, q):
    messages = [{{"role": "system", "content": "{RULES}"}}]
    if beta:
        messages.append({{"role": "system", "content": "Use the beta tools."}})
    messages.append({{"role": "user", "content": q}})
    return client.chat.completions.create(messages=messages)
'''
    )
    template = only(read(code)[0])
    (section,) = template.parts[1].pieces
    assert isinstance(section, Hole) and "conditional" in section.traits
    assert section.inner[0].value == "Use the beta tools."  # type: ignore[union-attr]


def test_functions_that_the_configuration_names(tmp_path: Path) -> None:
    from agentkv.lint.formats.base import Project
    from agentkv.lint.formats.python.reader import PythonFormat
    from agentkv.lint.source import Source

    code = """
from shop.gateway import submit
def go(gate, name):
    submit(f"Dear {name}, what is it", system=f"Stand by {name}")
    gate.push([("system", f"Be near {name} always"), ("human", "now")])
"""
    source = Source("a.py", code)
    assert PythonFormat().read(source, Project(tmp_path)).templates == ()
    named = Project(tmp_path, sinks=["shop.gateway.submit", "shop.Gate.push"])
    one, two = PythonFormat().read(source, named).templates
    assert [p.role for p in one.parts] == ["system", "user"]
    assert shape(one.parts[1]) == "Dear {name}, what is it"
    assert shape(two.parts[0]) == "Be near {name} always"


def test_texts_in_files(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "rules.md").write_text("Rules of the house for {brand}.")
    code = """
        from pathlib import Path
        from openai import OpenAI
        import other
        HERE = Path(__file__).parent
        A = (HERE / "rules.md").read_text()
        B = open("pkg/rules.md").read()
        C = open("pkg/missing.md").read()
        def ask(q, now):
            text = f"{A} {B} {C} {other.RULES} of {now}, as you know. " + A.format(brand=now)
            return OpenAI().chat.completions.create(messages=[{"role": "system", "content": text}, {"role": "user", "content": q}])
    """
    template = only(project(tmp_path, {"pkg/app.py": code})["pkg/app.py"][0])
    for name in ("A", "B"):
        assert hole(template, name).level == "build"
        assert inside(hole(template, name)) == "Rules of the house for {brand}."
    assert "fixed_text" in hole(template, "C").traits and not hole(template, "C").inner
    assert "fixed_text" in hole(template, "other.RULES").traits
    assert hole(template, "brand").slice is None and "clock" in hole(template, "brand").traits


def test_a_byte_order_mark_and_a_notebook_script() -> None:
    code = "\ufeff# é\nSYSTEM_PROMPT = 'You are é {name}. Answer the question politely and always in English.'\n"
    document, source = read(code)
    found = hole(only(document), "name")
    assert found.slice is not None and source[found.slice] == "{name}"


def test_a_file_that_is_no_python_is_skipped_with_a_reason() -> None:
    document, _ = read("prompt = 'You are a helpful assistant\n")
    assert document.skipped is not None and "line 1" in document.skipped
    assert not document.templates


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    from agentkv.lint.formats.base import Project
    from agentkv.lint.formats.python.reader import PythonFormat
    from agentkv.lint.source import Source

    whole = Project(tmp_path)
    one = PythonFormat().read(Source("a.py", f'PROMPT = "{RULES} {{a}}"\n'), whole)
    two = PythonFormat().read(Source("a.py", f'PROMPT = "{RULES} {{b}}"\n'), whole)
    assert [holes(only(d))[0].name for d in (one, two)] == ["a", "b"]
