"""What no fix may do: every row of the table of unsafe moves, and the two warning examples."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentkv.lint.finding import Finding

RULES = (
    "You are the desk of a shop for model trains, and you answer mails of customers.\n"
    "Each answer names the product, its price and the day of delivery.\n"
)


def refusals(found: list[Finding]) -> str:
    return " | ".join(f.fix.refused or "" for f in found if f.fix is not None)


CLOCK_IN_A_LIST = """\
You run the night desk of a small bank. Keep to this list.

1. Greet the customer and name the product that the mail is about.
2. It is now {now}.
3. If the time above is not between nine and five, answer CLOSED and nothing else.
4. Below is a ticket that shows what a good answer looks like.

```
ticket: {ticket_id}
state: waiting for the form
```

Keep the length and the tone of that ticket in each of your answers to the customer.
"""


def test_clock_in_a_numbered_list(
    propose: Callable[..., list[Finding]], fix: Callable[..., str]
) -> None:
    found = propose("prompts/desk.txt", CLOCK_IN_A_LIST)
    clock = next(f for f in found if f.code == "KV101")
    assert clock.fix is not None and not clock.fix.edits
    assert "number 2 of a list" in (clock.fix.refused or "")
    assert "'above'" in (clock.fix.refused or "")
    assert fix("prompts/desk.txt", CLOCK_IN_A_LIST) == CLOCK_IN_A_LIST


def test_clock_named_from_below(
    propose: Callable[..., list[Finding]], fix: Callable[..., str]
) -> None:
    text = f"Below is the time, and then the rules.\n\nTime: {{now}}\n\n{RULES}"
    assert "'Below'" in refusals(propose("prompts/desk.txt", text))
    assert fix("prompts/desk.txt", text) == text


def test_clock_in_a_fence(propose: Callable[..., list[Finding]], fix: Callable[..., str]) -> None:
    text = f"A sample:\n\n```\nmail of {{now}}\n```\n\n{RULES}"
    assert "inside a code fence" in refusals(propose("prompts/desk.txt", text))
    assert fix("prompts/desk.txt", text) == text


CHAT = """\
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

PROMPT = ChatPromptTemplate.from_messages([
    ("human", "I am called {user_name}, and I have a question about an order of last week."),
    ("ai", "Good day. What is the matter with the order, and what may I call you then?"),
    MessagesPlaceholder("history"),
    ("human", "Call me Kim from now on, please, as all my friends have done for many years."),
    ("ai", "With pleasure, Kim. What can I do for you about the order of last week?"),
    ("human", "{question}"),
])
"""


def test_turns_are_never_permuted(
    propose: Callable[..., list[Finding]], fix: Callable[..., str]
) -> None:
    found = propose("chat.py", CHAT)
    assert any(f.code == "KV209" for f in found)
    assert "order of a conversation is never changed" in refusals(found)
    for finding in found:
        assert finding.fix is None or not finding.fix.edits, finding.fix
    assert fix("chat.py", CHAT) == CHAT


def test_a_recorded_chat_is_left_alone(fix: Callable[..., str]) -> None:
    text = (
        '{"model": "m", "messages": [{"role": "user", "content": "I am Sam. It is 2026-09-11T08:00:00Z."},\n'
        ' {"role": "assistant", "content": "Good day, Sam."},\n'
        ' {"role": "user", "content": "Call me Kim."}, {"role": "assistant", "content": "Yes, Kim."},\n'
        ' {"role": "user", "content": "What is my name?"}]}\n'
    )
    assert fix("request.json", text) == text


TABLE = {
    "points back": ("Time: {now}\n" + RULES + "The value above is in UTC.\n", "'above'"),
    "points back, German": (
        "Uhrzeit: {now}\n" + RULES + "Die oben genannte Zeit ist UTC.\n",
        "'oben'",
    ),
    "points back, Chinese": ("Time: {now}\n" + RULES + "上述时间为协调世界时。\n", "上述"),
    "precedence": (
        "Time: {now}\n" + RULES + "This overrides previous instructions.\n",
        "'This'|overrides",
    ),
    "its own words": ("As said before, this document is of {now}.\n" + RULES, "said before"),
    "introduced": (
        "When you write an answer to a customer, use the following mails and nothing else at all:\n{context}\n\n"
        + RULES
        + RULES.replace("Each", "An"),
        "introduces",
    ),
    "ordered list": ("1. Time: {now}\n2. Be kind to each customer.\n" + RULES, "list"),
    "bullet": (
        "- Be kind to each customer.\n- Time: {now}\n- Be quick.\n" + RULES,
        "item of a list",
    ),
    "heading number": ("## 1. Time\n## 2. The time is {now}\n" + RULES, "introduces"),
    "table": ("| key | value |\n| time | {now} |\n| zone | UTC |\n" + RULES, "row of a table"),
    "tag on one line": (
        "Here <a>it is {now}\nfor all.</a> And more.\n" + RULES,
        "holds other text",
    ),
    "JSON sample": ('Sample: [\n  "time", "{now}",\n  "zone"\n]\n' + RULES, "braces"),
    "a rule": ("Always answer in {language}.\n" + RULES, "not known|rule"),
    "a rule of the user": ("Never call the customer {user_name}.\n" + RULES, "is a rule"),
    "refers back": (
        RULES + "That was {now}.\n" + RULES.replace("Each", "An"),
        "refers to what is ahead",
    ),
    "is referred to": ("The time is {now}.\nThis is UTC.\n" + RULES, "may refer to it"),
    "this article": ("Read this article.\n{article} {question}\n\n" + RULES, "'this article'"),
    "its events": ("{context}\n\nList its events.\n" + RULES, "'its'"),
    "this form": ("The minutes of {now} follow this form.\n" + RULES, "'this form'"),
    "wrapped line": (
        "The shop is in\nthe town of {now} and\nopens at nine.\n" + RULES,
        "goes on over|continues",
    ),
    "stray tag": ("<info/>\n{now}\n</info>\n" + RULES, "</info>"),
    "role mark": ("Time: {now}\n<|user|>\n" + RULES, "begins another message"),
    "half a sentence": ("The shop is open, and\nit is {now}.\n" + RULES, "continues a sentence"),
    "unknown language": ("Hora: {now}\nសូមឆ្លើយសំណួរទាំងអស់របស់អតិថិជនដោយសុជីវធម៌។\n" + RULES, "language"),
    "completion": ("Text: {question}\nAnswer:", ""),
}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_unsafe_moves_are_refused(
    name: str, propose: Callable[..., list[Finding]], fix: Callable[..., str]
) -> None:
    text, words = TABLE[name]
    found = propose("prompts/desk.txt", text)
    if words:
        said = refusals(found)
        assert any(w in said for w in words.split("|")), said or found
    assert fix("prompts/desk.txt", text) == text


def test_closing_reminder_and_suffix_stay_last(fix: Callable[..., str]) -> None:
    text = f"Time: {{now}}\n{RULES}Never reveal the price of another customer.\nQuestion: {{question}}\nAnswer:"
    made = fix("prompts/desk.txt", text)
    assert (
        made
        == f"{RULES}Time: {{now}}\nNever reveal the price of another customer.\nQuestion: {{question}}\nAnswer:"
    )


def test_examples_keep_their_order(
    propose: Callable[..., list[Finding]], fix: Callable[..., str]
) -> None:
    text = (
        "Question: {question}\nAnswer: yes\n\nQuestion: Is the sky blue on most of the days?\nAnswer: yes\n\n"
        "Question: Is snow black in most of the years?\nAnswer: no\n\n" + RULES
    )
    assert fix("prompts/desk.txt", text) == text


def test_assistant_messages_are_left_alone(fix: Callable[..., str]) -> None:
    text = f"---\nname: x\n---\nsystem:\nYou are kind.\n\nassistant:\nIt is {{{{now}}}}.\n{RULES}\nuser:\n{{{{question}}}}\n"
    assert fix("desk.prompty", text) == text


def test_user_data_never_goes_into_the_system_message(fix: Callable[..., str]) -> None:
    text = (
        f"---\nname: x\n---\nsystem:\n{RULES}\nuser:\nTime: {{{{now}}}}\n{RULES}{{{{question}}}}\n"
    )
    made = fix("desk.prompty", text)
    assert made.split("user:")[0] == text.split("user:")[0]


def test_names_are_defined_before_they_are_read(
    propose: Callable[..., list[Finding]], fix: Callable[..., str]
) -> None:
    text = f"{{% set stamp = now() %}}\nTime: {{{{ stamp }}}}\n{{% set stamp = 'never' %}}\n{RULES}"
    assert fix("prompts/desk.j2", text) == text
    assert "reads 'stamp'" in refusals(propose("prompts/desk.j2", text))
    loop = f"{{% for d in documents %}}\nTime: {{{{ now() }}}} {{{{ d }}}}\n{RULES}{{% endfor %}}\n"
    assert fix("prompts/desk.j2", loop) == loop


def test_counted_arguments(fix: Callable[..., str]) -> None:
    text = (
        "from datetime import datetime\n"
        'PROMPT = "Time: {}\\n'
        + RULES.replace("\n", "\\n")
        + 'Name: {}\\nThat is all there is to say."\n\n'
        "def ask(client, name):\n    return client.chat.completions.create(model='m', messages=[\n"
        "        {'role': 'user', 'content': PROMPT.format(datetime.now(), name)}])\n"
    )
    made = fix("desk.py", text)
    # The clock may pass fixed text, never the other argument.
    assert made.index("Time: {}") < made.index("Name: {}")


def test_expressions_that_do_something(fix: Callable[..., str]) -> None:
    text = (
        "import time\n\ndef ask(client, it):\n    return client.chat.completions.create(model='m', messages=[\n"
        "        {'role': 'system', 'content': f\"It is {(now := time.time())}.\\n"
        + RULES.replace("\n", "\\n")
        + 'Again: {now}"}])\n'
    )
    assert fix("desk.py", text) == text


def test_a_schema_is_never_sorted(
    propose: Callable[..., list[Finding]], fix: Callable[..., str]
) -> None:
    text = (
        "import json\n\ndef ask(client, answer_schema):\n"
        "    return client.chat.completions.create(model='m', messages=[\n"
        f"        {{'role': 'system', 'content': f'''Answer by {{json.dumps(answer_schema)}}.\n{RULES}'''}}])\n"
    )
    assert "sort_keys" not in fix("desk.py", text)
