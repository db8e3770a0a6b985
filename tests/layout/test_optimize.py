"""`optimize()`: a LangChain template re-laid, with the same variables and the same words."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.prompts import (
    ChatPromptTemplate,
    FewShotChatMessagePromptTemplate,
    HumanMessagePromptTemplate,
    MessagesPlaceholder,
    PromptTemplate,
    SystemMessagePromptTemplate,
)

from agentkv.layout import Optimized, optimize

RULES = "You are the support agent of a parcel service.\nBe kind, and be brief.\n"
HUMAN = ("human", "{question}")


def template(system: str, *rest: Any) -> ChatPromptTemplate:
    return ChatPromptTemplate.from_messages([("system", system), *(rest or (HUMAN,))])


def check(given: ChatPromptTemplate, **kwargs: Any) -> Optimized:
    """Optimize, and assert what holds for every template."""
    done = optimize(given, **kwargs)
    assert type(done.template) is type(given)
    assert done.template.input_variables == given.input_variables
    assert done.template.partial_variables == given.partial_variables
    again = optimize(done.template, **kwargs)
    assert again.moves == ()
    assert again.template is done.template
    values = {name: f"<{name}>" for name in given.input_variables}
    for name in given.optional_variables:
        values.setdefault(name, [])  # type: ignore[arg-type]
    for message in given.messages:
        if isinstance(message, MessagesPlaceholder):
            values[message.variable_name] = []  # type: ignore[assignment]
    before = given.format_messages(**values)
    after = done.template.format_messages(**values)
    lines = sorted(x for m in before for x in str(m.content).split("\n") if x.strip())
    sent = [x.strip() for m in after for x in str(m.content).split("\n") if x.strip()]
    for line in lines:
        assert line.strip() in sent
    return done


def systems(done: Optimized, **values: Any) -> str:
    return str(done.template.format_messages(**values)[0].content)


def reason(done: Optimized, name: str) -> str:
    return {r.name: r.reason for r in done.refused}[name]


def test_a_clock_line_goes_to_a_labelled_block_at_the_end() -> None:
    done = check(template(f"Now: {{now}}\n{RULES}"))
    assert [(m.name, m.to) for m in done.moves] == [("now", "tail")]
    assert done.refused == ()
    head, last = done.template.format_messages(now="12:00", question="Where?")
    assert head.content == RULES.rstrip("\n")
    assert last.content == 'Where? \n\n<context name="now">\nNow: 12:00\n</context>'


def test_renderings_of_two_calls_share_their_beginning() -> None:
    given = template(f"Now: {{now}}\nCustomer: {{user_name}}\n{RULES * 10}")

    def shared(prompt: ChatPromptTemplate) -> int:
        one = prompt.format(now="1", user_name="Ann", question="?")
        other = prompt.format(now="2", user_name="Bob", question="?")
        return sum(1 for _ in takewhile(lambda ab: ab[0] == ab[1], zip(one, other, strict=False)))

    assert shared(given) < 20
    assert shared(check(given).template) > len(RULES * 10)


def test_slower_lines_go_behind_the_fixed_ones() -> None:
    done = check(template(f"Customer: {{user_name}}\n{RULES}"))
    assert [(m.name, m.to) for m in done.moves] == [("user_name", "behind_static")]
    assert systems(done, user_name="Ann", question="?") == f"{RULES}Customer: Ann\n"


def test_a_passage_with_its_label_and_tags_moves_whole() -> None:
    done = check(template(f"Answer from these notes:\n<notes>\n{{docs}}\n</notes>\n{RULES}"))
    last = done.template.format_messages(docs="D", question="?")[-1].content
    assert "Answer from these notes:\n<notes>\nD\n</notes>" in str(last)
    assert systems(done, docs="D", question="?") == RULES.rstrip("\n")


def test_levels_can_be_said() -> None:
    text = f"Mood: {{mood}}\n{RULES}"
    unknown = check(template(text))
    assert unknown.moves == ()
    assert "not known" in reason(unknown, "mood")
    assert check(template(text), volatile=("mood",)).moves[0].to == "tail"
    assert check(template(text), stability={"mood": "user"}).moves[0].to == "behind_static"
    assert check(template(text), stable="mood") == (template(text), (), ())
    assert check(template(f"Now: {{now}}\n{RULES}"), stable=("now",)).moves == ()
    with pytest.raises(ValueError, match="stability must be one of"):
        optimize(template(text), stability={"mood": "hourly"})


@pytest.mark.parametrize(
    ("system", "name", "why"),
    [
        ("Now: {now}\nUse the time above.\nBe kind.\n", "now", "'above'"),
        ("1. Be kind.\n2. It is {now}.\n3. Be brief.\n", "now", "number 2 of a list"),
        ("Be kind.\n```\nat {now}\n```\n", "now", "code fence"),
        (
            "You help {customer} kindly. Now it is {now}.\nBe brief.\n",
            "customer+now",
            "line of its",
        ),
        ("Never answer after {now}.\nBe kind.\n", "now", "is a rule"),
        ("Die Zeit: {now}\nNutze die obige Zeit.\n", "now", "obige"),
        ("Be kind,\nit is {now}\nand be brief.\n", "now", "continues"),
        ("{now}\n", "now", "nothing else"),
    ],
)
def test_refusals_in_words(system: str, name: str, why: str) -> None:
    given = template(system)
    done = check(given)
    assert done.moves == ()
    assert done.template is given
    assert why in reason(done, name)


def test_where_nothing_can_follow_the_end() -> None:
    text = f"Now: {{now}}\n{RULES}"
    primed = check(template(text, ("human", "Review: {text}\nSentiment:")))
    assert "go on from" in reason(primed, "now")
    spoken = check(template(text, HUMAN, ("ai", "Sure,")))
    assert "assistant's own words" in reason(spoken, "now")
    fixed = check(template(text, HumanMessage("Where?")))
    assert "fixed one" in reason(fixed, "now")
    other = HumanMessagePromptTemplate.from_template("{{question}}", template_format="mustache")
    assert "mustache" in reason(check(template(text, other)), "now")


def test_placeholders_keep_their_places() -> None:
    agent = template(f"Now: {{now}}\n{RULES}", MessagesPlaceholder("history"), HUMAN)
    done = check(agent)
    assert isinstance(done.template.messages[1], MessagesPlaceholder)
    history = [HumanMessage("a"), AIMessage("b")]
    out = done.template.format_messages(now="1", question="?", history=history)
    assert out[1:3] == history
    pad = template(f"Now: {{now}}\n{RULES}", HUMAN, MessagesPlaceholder("agent_scratchpad"))
    assert "'agent_scratchpad'; trailing=True" in reason(check(pad), "now")
    own = check(pad, trailing=True)
    out = own.template.format_messages(now="1", question="?", agent_scratchpad=history)
    assert [type(m) for m in out[-3:]] == [HumanMessage, AIMessage, HumanMessage]
    assert out[-1].content == '<context name="now">\nNow: 1\n</context>'


def test_partial_variables() -> None:
    given = template(f"At: {{when}}\n{RULES}").partial(when=lambda: "noon")
    done = check(given)
    assert [(m.name, m.to) for m in done.moves] == [("when", "tail")], "made anew by every call"
    assert "At: noon" in str(done.template.format_messages(question="?")[-1].content)
    fixed = check(template(f"Site: {{site}}\n{RULES}").partial(site="Bonn"))
    assert (fixed.moves, fixed.refused) == ((), ())
    inner = PromptTemplate(
        template=f"Now: {{now}}\n{RULES}",
        input_variables=[],
        partial_variables={"now": lambda: "noon"},
    )
    message = SystemMessagePromptTemplate(prompt=inner)
    own = check(ChatPromptTemplate.from_messages([message, HUMAN]))
    assert "partial variable of its own message" in reason(own, "now")


def test_few_shot_examples_stay() -> None:
    shots = FewShotChatMessagePromptTemplate(
        examples=[{"q": "1+1", "a": "2"}],
        example_prompt=ChatPromptTemplate.from_messages([("human", "{q}"), ("ai", "{a}")]),
    )
    given = template(f"Now: {{now}}\n{RULES}", shots, HUMAN)
    done = check(given)
    assert done.template.messages[1] is shots
    assert done.moves[0].name == "now"

    from langchain_core.example_selectors import LengthBasedExampleSelector

    choosing = FewShotChatMessagePromptTemplate(
        example_selector=LengthBasedExampleSelector(
            examples=[{"q": "1", "a": "2"}], example_prompt=PromptTemplate.from_template("{q}{a}")
        ),
        input_variables=["question"],
        example_prompt=shots.example_prompt,
    )
    chosen = optimize(template(RULES, choosing, HUMAN))
    assert "chosen by the call" in reason(chosen, "FewShotChatMessagePromptTemplate")


def test_other_template_formats_and_content_are_left_alone() -> None:
    jinja = "Now: {{ now }}\n{% if late %}Hurry.{% endif %}"
    message = SystemMessagePromptTemplate.from_template(jinja, template_format="jinja2")
    given = ChatPromptTemplate.from_messages([message, HUMAN])
    done = optimize(given)
    assert done.template is given
    assert "jinja2" in reason(done, "system")
    fixed = ChatPromptTemplate.from_messages([SystemMessage("Now: {now}"), HUMAN])
    assert optimize(fixed) == (fixed, (), ())
    image = (
        "human",
        [{"type": "text", "text": "{question}"}, {"type": "image_url", "image_url": "{link}"}],
    )
    done = optimize(template(f"Now: {{now}}\n{RULES}", image))
    last = done.template.format_messages(now="1", question="?", link="data:,")[-1].content
    assert isinstance(last, list)
    assert "Now: 1" in str(last[-1])
    assert optimize(done.template).template is done.template


def test_braces_and_fields_are_kept() -> None:
    given = template('Now: {now}\nWrite {{"a": 1}} as JSON.\nCost: {price:.2f}\n')
    done = optimize(given, stable=("price",))
    values: dict[str, Any] = {"now": "1", "price": 2.5, "question": "?"}
    assert systems(done, **values) == 'Write {"a": 1} as JSON.\nCost: 2.50'
    assert "Now: 1" in str(done.template.format_messages(**values)[-1].content)


def test_human_messages_are_not_taken_apart() -> None:
    given = template(RULES, ("human", "Now: {now}\nQuestion: {question}"))
    assert optimize(given) == (given, (), ())


def test_only_chat_templates() -> None:
    with pytest.raises(TypeError, match="takes a ChatPromptTemplate, got PromptTemplate"):
        optimize(PromptTemplate.from_template("{x}"))  # type: ignore[type-var]
