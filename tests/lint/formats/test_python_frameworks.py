"""LangChain, LlamaIndex, Haystack, DSPy and agents."""

from __future__ import annotations

import pytest

from agentkv.lint.template import Hole, Text
from tests.lint.formats.python_help import RULES, hole, holes, only, read, shape

TOP = """
from datetime import date, datetime
from langchain_core.prompts import *
from langchain_core.prompts import (ChatPromptTemplate, PromptTemplate, MessagesPlaceholder, FewShotPromptTemplate,
    SystemMessagePromptTemplate, HumanMessagePromptTemplate, FewShotChatMessagePromptTemplate)
from langchain_core.messages import SystemMessage, HumanMessage, AIMessage
from langchain_core.example_selectors import SemanticSimilarityExampleSelector
RULES = "%s"
def get_now():
    return datetime.now().isoformat()
""".replace("%s", RULES)


def test_chat_prompt_template() -> None:
    code = (
        TOP
        + """
prompt = ChatPromptTemplate.from_messages([
    ("system", "You are {role}. Today: {today}. Write {{json}}."),
    MessagesPlaceholder("chat_history"),
    ("human", "{question}"),
    ("placeholder", "{agent_scratchpad}"),
])
"""
    )
    document, source = read(code)
    template = only(document)
    assert [(p.role, p.placeholder) for p in template.parts] == [
        ("system", False),
        ("unknown", True),
        ("user", False),
        ("unknown", True),
    ]
    assert shape(template.parts[0]) == "You are {role}. Today: {today}. Write {json}."
    found = hole(template, "today")
    assert found.slice is not None and source[found.slice] == "{today}"
    assert "history" in hole(template, "chat_history").traits
    assert "scratchpad" in hole(template, "agent_scratchpad").traits
    assert template.followed and template.syntax == "format" and template.writable


@pytest.mark.parametrize(
    "code",
    [
        "ChatPromptTemplate([SystemMessagePromptTemplate.from_template('For {brand}. ' + RULES), ('human', '{question}')])",
        "ChatPromptTemplate(messages=[('system', 'For {brand}. ' + RULES), ('human', '{question}')])",
        "ChatPromptTemplate.from_messages([SystemMessagePromptTemplate.from_template('For {brand}. ' + RULES), HumanMessagePromptTemplate.from_template('{question}')])",
        "ChatPromptTemplate.from_messages([SystemMessagePromptTemplate(prompt=PromptTemplate(template='For {brand}. ' + RULES, input_variables=[])), ('user', '{question}')])",
    ],
)
def test_ways_to_write_messages(code: str) -> None:
    template = only(read(TOP + f"p = {code}\n")[0])
    assert [p.role for p in template.parts] == ["system", "user"]
    assert hole(template, "brand").slice is not None and hole(template, "question").level == "turn"


def test_message_objects_are_no_templates() -> None:
    code = (
        TOP
        + """
p = ChatPromptTemplate.from_messages([SystemMessage(content=RULES + " Use {braces} as they are."), ("human", "{q}")])
"""
    )
    template = only(read(code)[0])
    assert [h.name for h in holes(template)] == ["RULES", "q"]


@pytest.mark.parametrize(
    ("format_", "text", "names"),
    [
        ("jinja2", "{{ a }} and {% for d in docs %}{{ d.text }}{% endfor %} ", ["a", "docs"]),
        ("mustache", "{{a}} and {{#docs}}x{{/docs}} {{{c}}} ", ["a", "docs", "c"]),
        ("f-string", "{a} and {{b}} ", ["a"]),
    ],
)
def test_template_formats(format_: str, text: str, names: list[str]) -> None:
    code = (
        TOP
        + f"p = PromptTemplate(template={text!r} + '{RULES.replace(chr(39), '')}', template_format={format_!r}, input_variables=['a'])\n"
    )
    document, source = read(code)
    template = only(document)
    assert [h.name for h in holes(template)] == names
    assert all(h.slice and source[h.slice].startswith(h.expr) for h in holes(template))


def test_partials() -> None:
    code = (
        TOP
        + """
a = PromptTemplate(template="Now {date}. {x} " + RULES, input_variables=["x"], partial_variables={"date": get_now, "x": "fixed"})
b = ChatPromptTemplate.from_messages([("system", "At {when} in {place}. " + RULES), ("human", "{q}")]).partial(
    when=lambda: datetime.now(), place="Rome")
c = PromptTemplate.from_template("On {day}. " + RULES, partial_variables={"day": date.today})
"""
    )
    a, b, c = read(code)[0].templates
    assert {"clock", "callable_partial"} <= hole(a, "date").traits and hole(
        a, "date"
    ).level == "call"
    assert hole(a, "x").level == "build" and hole(a, "x").known
    assert {"clock", "callable_partial"} <= hole(b, "when").traits
    assert hole(b, "place").level == "build"
    assert {"date", "callable_partial"} <= hole(c, "day").traits


def test_bindings_from_a_chain() -> None:
    code = (
        TOP
        + """
prompt = ChatPromptTemplate.from_messages([("system", "It is {x}. " + RULES), ("human", "{q}")])
def run(llm, q):
    chain = prompt | llm
    return chain.invoke({"x": datetime.now(), "q": q})
"""
    )
    assert "clock" in hole(only(read(code)[0]), "x").traits


def test_few_shots() -> None:
    code = (
        TOP
        + """
selector = SemanticSimilarityExampleSelector.from_examples(EXAMPLES, emb, store, k=3)
a = FewShotPromptTemplate(example_selector=selector, example_prompt=ex, prefix="You translate words. Answer with one word.", suffix="{word}", input_variables=["word"])
b = FewShotPromptTemplate(examples=[{"i": "a", "o": "b"}], example_prompt=ex, prefix="You translate words. Answer with one word.", suffix="{word}")
shots = FewShotChatMessagePromptTemplate(example_selector=selector, example_prompt=ex)
c = ChatPromptTemplate.from_messages([("system", "You translate words."), shots, ("human", "{word}")])
"""
    )
    a, b, c = read(code)[0].templates
    assert "selector" in hole(a, "examples").traits and hole(a, "examples").level == "turn"
    assert hole(b, "examples").level == "build" and "selector" not in hole(b, "examples").traits
    assert [p.placeholder for p in c.parts] == [False, True, False]
    assert "selector" in hole(c, "examples").traits


@pytest.mark.parametrize(
    "code",
    [
        "agent = create_agent(model, tools=[a], system_prompt=SYSTEM)",
        "agent = create_agent('m', [a], system_prompt=SYSTEM)",
        "agent = create_react_agent(model, [a], prompt=SYSTEM)",
        "agent = create_react_agent(model, [a], prompt=SystemMessage(content=SYSTEM))",
        "agent = create_react_agent(model, [a], state_modifier=SYSTEM)",
        "agent = create_deep_agent(tools=[a], system_prompt=SYSTEM)",
        "agent = Agent(name='x', instructions=SYSTEM)",
        "agent = AssistantAgent('x', system_message=SYSTEM)",
        "agent = LlmAgent(model='m', instruction=SYSTEM)",
        "model = genai.GenerativeModel('m', system_instruction=SYSTEM)",
    ],
)
def test_agents(code: str) -> None:
    document, _ = read(
        TOP
        + "def make(model, a):\n    "
        + code.replace("SYSTEM", 'f"Now {get_now()}. {RULES}"')
        + "\n"
    )
    template = only(document)
    assert template.followed and template.parts[0].role == "system"
    assert "clock" in holes(template)[0].traits


def test_dynamic_prompt() -> None:
    code = (
        TOP
        + """
@dynamic_prompt
def system(request):
    name = request.runtime.context.user_name
    return f"You help {name}. {RULES}"
"""
    )
    template = only(read(code)[0])
    assert template.followed and template.parts[0].role == "system"
    assert holes(template)[0].level == "user"


def test_pydantic_ai_decorators() -> None:
    code = (
        TOP
        + """
@agent.system_prompt
def when() -> str:
    return f"It is {datetime.now()}."
"""
    )
    template = only(read(code)[0])
    assert template.followed and "clock" in holes(template)[0].traits


def test_a_prompt_that_is_a_function() -> None:
    code = (
        TOP
        + """
def make(model):
    def prompt(state):
        return [{"role": "system", "content": f"Help {state['user_name']}. {RULES}"}] + state["messages"]
    return create_react_agent(model, [], prompt=prompt)
"""
    )
    template = next(t for t in read(code)[0].templates if holes(t))
    assert [p.role for p in template.parts][:1] == ["system"] and template.followed
    assert hole(template, "user_name").level == "user"


def test_llama_index() -> None:
    code = """
from llama_index.core import PromptTemplate, ChatPromptTemplate
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.prompts import RichPromptTemplate
qa = PromptTemplate("Context: {context_str}\\nGiven the context, answer the query.\\nQuery: {query_str}\\nAnswer:")
chat = ChatPromptTemplate(message_templates=[
    ChatMessage(role=MessageRole.SYSTEM, content="You are a helpful assistant for {brand}."),
    ChatMessage(role=MessageRole.USER, content="{query_str}")])
rich = RichPromptTemplate('''{% chat role="system" %}You are a helpful assistant. {{ now }}{% endchat %}
{% chat role="user" %}{{ query_str }}{% endchat %}''')
mapped = PromptTemplate("Be kind to everybody. {when} {query_str}", function_mappings={"when": lambda **kw: datetime.now()})
"""
    document, source = read("from datetime import datetime\n" + code)
    qa, chat, rich, mapped = document.templates
    assert hole(qa, "context_str").level == "turn"
    assert [p.role for p in chat.parts] == ["system", "user"]
    assert [p.role for p in rich.parts] == ["system", "user"]
    assert source[hole(rich, "now").slice] == "{{ now }}"  # type: ignore[index]
    assert {"clock", "callable_partial"} <= hole(mapped, "when").traits


def test_haystack() -> None:
    code = '''
from haystack.components.builders import PromptBuilder, ChatPromptBuilder
from haystack.dataclasses import ChatMessage
a = PromptBuilder(template="""
{% for doc in documents %}{{ doc.content }}{% endfor %}
Given the documents, answer the question.
Question: {{ question }}
""")
b = ChatPromptBuilder(template=[ChatMessage.from_system("You are helpful. {{ user_name }}"), ChatMessage.from_user("{{ question }}")])
'''
    a, b = read(code)[0].templates
    loop = hole(a, "documents")
    assert "loop" in loop.traits and loop.level == "turn" and loop.inner
    assert [p.role for p in b.parts] == ["system", "user"]
    assert a.syntax == "jinja"


def test_dspy_signature() -> None:
    code = '''
import dspy
class Grade(dspy.Signature):
    """Grade the answer of a student. Be fair."""
    rubric: str = dspy.InputField(desc="what counts")
    answer: str = dspy.InputField()
    score: int = dspy.OutputField(desc="0 to 10")
'''
    template = only(read(code)[0])
    assert "".join(p.value for p in template.parts[0].pieces if isinstance(p, Text)).startswith(
        "Grade the answer"
    )
    assert [p.name for p in template.parts[1].pieces if isinstance(p, Hole)] == ["rubric", "answer"]


def test_the_same_template_object_in_two_chains_is_one() -> None:
    code = (
        TOP
        + """
prompt = ChatPromptTemplate.from_messages([("system", "You are a helper. {x} " + RULES), ("human", "{q}")])
def a(llm): return (prompt | llm).invoke({"x": 1, "q": "a"})
def b(llm): return (prompt | llm).invoke({"x": 2, "q": "b"})
"""
    )
    assert len(read(code)[0].templates) == 1


@pytest.mark.parametrize("module", ["agentkv", "agentkv.prompt"])
def test_marked_blocks_go_where_the_layout_puts_them(module: str) -> None:
    """`volatile()` is no part of the prefix, and `static()` is its text."""
    code = f"""
    from datetime import datetime

    from langchain_core.messages import HumanMessage, SystemMessage
    from {module} import static, volatile

    RULES = {RULES!r}

    def ask(model, question):
        clock = f"It is {{datetime.now()}}"
        system = SystemMessage([volatile(clock, "clock"), static(RULES)])
        return model.invoke([system, HumanMessage(question)])
    """
    template = only(read(code)[0])
    assert [p.value for p in template.parts[0].pieces if isinstance(p, Text)] == [RULES]
    assert [h.name for h in holes(template)] == ["question"]
