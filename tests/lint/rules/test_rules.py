"""Each rule: a bad document that gives exactly its code, and look-alikes that are silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentkv.lint.rule import all_rules
from agentkv.lint.template import Document

Case = Callable[[Any], Document]

# -- bad -------------------------------------------------------------------------------------------

BAD: dict[str, list[Case]] = {
    "KV101": [
        lambda b: b.document(b.hole("now", "call", "clock"), b.rules(300)),
        lambda b: b.document(b.part("system", b.hole("system_time"), b.rules(300)), b.part("user", b.hole("q", "turn", "question"))),
        # At the end of a system message it costs the conversation.
        lambda b: b.document(b.template(b.part("system", b.rules(300), b.hole("now", "call", "clock")), followed=True)),
        # A recorded request has no template language: the clock is the caller's.
        lambda b: b.document(b.template(b.hole("2026-03-04T08:15:42Z", "call", "clock"), b.rules(300), format="request", syntax="none")),
        # Inside a section the clock is what is found.
        lambda b: b.document(
            b.hole("info", "call", "conditional", inner=(b.text("It is "), b.hole("now", "call", "clock"))), b.rules(200)
        ),
    ],
    "KV102": [
        lambda b: b.document(b.hole("today", "call", "date"), b.rules(300)),
        lambda b: b.document("Today is ", b.hole("current_date"), b.rules(300)),
    ],
    "KV103": [
        # The name says what the clock is for.
        lambda b: b.document("[", b.hole("nonce", "call", "clock"), "]", b.rules(100)),
        lambda b: b.document("Request ", b.hole("uuid4()", "call", "random_id"), b.rules(100)),
        lambda b: b.document(b.hole("request_id"), b.rules(100)),
        lambda b: b.document(b.hole("session_id"), b.rules(100)),
    ],
    "KV104": [lambda b: b.document(b.hole("greeting", "call", "random_content"), b.rules(100))],
    "KV105": [
        lambda b: b.document("Step ", b.hole("i", "call", "counter"), b.rules(100)),
        lambda b: b.document(b.hole("tokens_left"), b.rules(100)),
    ],
    "KV106": [
        lambda b: b.document(b.hole("cwd"), b.rules(300)),
        lambda b: b.document(b.hole("os.getpid()", "session", "host_state"), b.rules(300)),
    ],
    "KV107": [lambda b: b.document("You use ", b.hole("client", "unknown", "object_repr"), b.rules(300))],
    "KV108": [lambda b: b.document(b.hole("now", "deploy", "clock", "import_time"), b.rules(300))],
    "KV109": [lambda b: b.document(b.hole("date", "call", "clock", "callable_partial"), b.rules(300))],
    "KV110": [
        lambda b: b.document(
            b.template("It is ", b.hole("now", "call", "clock", expr="{{ now() }}"), b.rules(300), format="jinja", syntax="jinja")
        ),
    ],
    "KV111": [lambda b: b.document(b.hole("header", "call", "clock", "via_helper"), b.rules(300))],
    "KV112": [
        lambda b: b.document(
            b.part("user", b.hole("image", "turn", "image", "reencoded")), b.part("user", b.hole("q", "turn", "question"))
        ),
        lambda b: b.document(b.part("user", b.hole("url", "call", "image", "signed_url"), b.rules(80))),
    ],
    "KV201": [
        lambda b: b.document("Level: ", b.hole("level", "session"), b.rules(200)),
        lambda b: b.document(b.part("system", b.hole("plan", "tenant"), b.rules(200)), b.part("user", b.hole("q", "turn"))),
    ],
    "KV202": [
        lambda b: b.document("You help ", b.hole("user_name"), b.rules(200)),
        lambda b: b.document(b.part("system", "You help ", b.hole("name"), " (id ", b.hole("uid"), ").", b.rules(200))),
        lambda b: b.document(b.hole("tenant_id"), b.rules(200)),
    ],
    "KV203": [
        lambda b: b.document(b.part("system", "Memories: ", b.hole("memories"), b.rules(200))),
        lambda b: b.document(b.part("system", b.rules(200), b.hole("memories", "turn", "memory")), b.history()),
    ],
    "KV204": [
        lambda b: b.document(b.hole("beta", "unknown", "conditional", known=False, inner=(b.text("Beta."),)), b.rules(200)),
    ],
    "KV205": [
        lambda b: b.document("Question: ", b.hole("question"), "\nDocuments: ", b.hole("documents")),
        lambda b: b.document(b.part("system", b.rules(200)), b.part("user", b.hole("query"), "\n", b.hole("context_str"), "\nAnswer:")),
        lambda b: b.document("Task: ", b.hole("task"), b.hole("docs", "turn", "loop", "context", inner=(b.hole("doc"),)), b.rules(30)),
    ],
    "KV206": [
        lambda b: b.document(b.part("system", "They ask ", b.hole("question"), b.rules(200)), b.history()),
        lambda b: b.document(b.part("system", b.rules(200), b.hole("question"))),
    ],
    "KV207": [
        lambda b: b.document(b.hole("context"), b.rules(200)),
        lambda b: b.document("<page>", b.hole("webpage_content"), "</page>", b.rules(200)),
    ],
    "KV208": [
        lambda b: b.document("Customer: ", b.hole("customer"), "\n\nExamples:\nQ: a\nA: b\n", b.rules(100)),
        lambda b: b.document(b.hole("topic"), "\n", b.hole("few_shot_examples"), "\n"),
        lambda b: b.document(
            b.part("system", "You serve ", b.hole("customer_name")),
            b.part("user", b.rules(40, "ask")),
            b.part("assistant", b.rules(60, "say")),
            b.part("user", b.hole("question")),
        ),
    ],
    "KV209": [
        lambda b: b.document(
            b.part("system", b.rules(100)),
            b.history(),
            b.part("user", b.rules(60, "ask")),
            b.part("assistant", b.rules(60, "say")),
            b.part("user", b.hole("input")),
        ),
    ],
    "KV210": [
        lambda b: b.document(b.hole("query"), "\n\n", b.hole("format_instructions"), "\n"),
        lambda b: b.document(b.hole("topic"), '\n{"type": "object", "properties": {"a": {}}}', b.rules(80)),
    ],
    "KV211": [
        lambda b: b.document("You work for ", b.hole("user_name"), ".\n", b.hole("tools"), "\n"),
        lambda b: b.document(b.hole("user_name"), "\nYou have access to the following tools:", b.rules(90)),
    ],
    "KV212": [
        lambda b: b.document(b.part("system", b.rules(99)), b.history(), b.part("system", b.rules(99, "late"))),
        lambda b: b.document(b.part("user", b.hole("question")), b.part("system", b.rules(99, "late"))),
    ],
    "KV213": [lambda b: b.document(b.template(b.rules(600), b.hole("topic"), "\n", b.hole("question"), syntax="fstring"))],
    "KV214": [lambda b: b.document(b.rules(120), b.hole("material"), b.rules(120))],
    "KV215": [
        lambda b: b.document(b.hole("preface"), b.rules(200)),
        lambda b: b.document(b.hole("one"), b.rules(200), b.hole("two"), b.rules(200, "more")),
    ],
    "KV216": [
        lambda b: b.document(b.part("system", b.rules(200), b.hole("context")), b.history(), b.part("user", b.hole("question"))),
        lambda b: b.document(b.template(b.part("system", b.rules(200), b.hole("state", "turn")), followed=True)),
    ],
    "KV301": [
        lambda b: b.document("Topics: ", b.hole("TOPICS", "build", "set_order"), b.rules(200)),
        lambda b: b.document(b.part("system", b.rules(200), b.hole("TOPICS", "build", "set_order"))),
    ],
    "KV302": [lambda b: b.document(b.hole("settings", "unknown", "unsorted_json"), b.rules(200))],
    "KV303": [lambda b: b.document(b.hole("files", "session", "listing"), b.rules(200))],
    "KV304": [lambda b: b.document(b.hole("notes", "turn", "completion_order", "context"), b.rules(200))],
    "KV305": [lambda b: b.document(b.hole("tags", "user", "tie_order"), b.rules(200))],
    "KV306": [lambda b: b.document(b.rules(200), b.hole("docs", "turn", "context", "score_order"), "\n", b.hole("question"))],
    "KV307": [lambda b: b.document(b.rules(200), b.hole("docs", "turn", "context", "score_text"), "\n", b.hole("question"))],
    "KV308": [lambda b: b.document(b.hole("shots", "call", "shuffled", "random_content", "examples"), b.rules(200))],
    "KV309": [lambda b: b.document(b.hole("selected", "turn", "examples", "selector"), b.rules(200))],
    "KV310": [
        lambda b: b.document("one\r\ntwo\nthree", b.rules(100)),
        lambda b: b.document(b.rules(100), "\n", b.hole("notes", "unknown", "dedented"), "\n"),
    ],
    "KV311": [
        lambda b: b.document("\ufeffYou are helpful.", b.rules(100)),
        lambda b: b.document("Ein Cafe\u0301 in Wien.", b.rules(100)),
        lambda b: b.document("No\u00a0break.", b.rules(100)),
    ],
    "KV312": [lambda b: b.document(b.hole("budget", "unknown", "locale"), b.rules(200))],
    "KV401": [lambda b: b.document(b.request(b.template(b.part("system", b.rules(200)), b.history()), history=(b.op("front_truncation"),)))],
    "KV402": [lambda b: b.document(b.request(history=(b.op("edited_in_place", in_loop=True),)))],
    "KV403": [
        lambda b: b.document(b.part("system", "So far: ", b.hole("summary"), b.rules(200)), b.history()),
        lambda b: b.document(b.request(history=(b.op("summarised_into_head"),))),
    ],
    "KV404": [lambda b: b.document(b.request(history=(b.op("system_mutated", in_loop=True),)))],
    "KV405": [
        lambda b: b.document(b.request(history=(b.op("inserted_mid"),))),
        lambda b: b.document(b.request(history=(b.op("inserted_front", in_loop=True),))),
    ],
    "KV406": [
        lambda b: b.document(b.request(history=(b.op("reasoning_stripped"),))),
        lambda b: b.document(b.request(history=(b.op("edited_in_place", detail='m["content"] = re.sub("<think>.*?</think>", "", c)'),))),
    ],
    "KV407": [lambda b: b.document(b.request(history=(b.op("reserialised"),)))],
    "KV408": [lambda b: b.document(b.request(history=(b.op("mid_trim"),)))],
    "KV409": [lambda b: b.document(b.request(history=(b.op("rebuilt_each_call"),)))],
    "KV410": [
        lambda b: b.document(
            b.request(b.template(b.part("system", b.rules(99)), b.history(), name="chat"), tools=b.tools(level="build")),
            b.request(b.template(b.part("system", "Summarise the conversation."), b.history(), name="sum")),
        ),
    ],
    "KV501": [
        lambda b: b.document(b.request(tools=b.tools("set_order", level="build"))),
        lambda b: b.document(b.request(tools=b.tools("listing", level="session"))),
    ],
    "KV502": [lambda b: b.document(b.request(tools=b.tools(filtered=True, level="user")))],
    "KV503": [lambda b: b.document(b.request(tools=b.tools(dynamic_schema=True, level="call")))],
    "KV504": [
        lambda b: b.document(b.request(tools=b.tools("unsorted_json", level="session"))),
        lambda b: b.document(b.part("system", "Tools: ", b.hole("schemas", "session", "unsorted_json"), b.rules(100)), b.history()),
    ],
    "KV505": [
        lambda b: b.document(b.request(settings=(b.setting("response_format", "turn"),))),
        lambda b: b.document(b.request(settings=(b.setting("response_format", "unknown", "conditional"),))),
    ],
    "KV506": [
        lambda b: b.document(b.request(settings=(b.setting("tool_choice", "turn", "conditional"),))),
        lambda b: b.document(b.request(settings=(b.setting("thinking", "user"),))),
    ],
    "KV507": [
        lambda b: b.document(b.request(settings=(b.setting("model", "turn", "conditional"),))),
        lambda b: b.document(b.request(settings=(b.setting("model", "call", "random_content"),))),
    ],
    "KV601": [
        lambda b: b.document(
            b.template(
                b.part("system", "Today Date: ", b.hole("strftime_now", "call", "date")),
                b.history("messages"),
                format="chat_template",
                syntax="jinja",
            )
        ),
    ],
    "KV602": [lambda b: b.document(b.request(api="chat_template", history=(b.op("tail_dependent"),)))],
    "KV603": [lambda b: b.document(b.request(api="chat_template", history=(b.op("reasoning_stripped"),)))],
    "KV604": [
        lambda b: b.document(b.rules(100), "Answer in one sentence.", b.hole("question")),
        lambda b: b.document(b.rules(100), "Answer politely", b.hole("question")),
        lambda b: b.document(b.hole("RULES", "build", inner=(b.rules(100), b.text("Go on: The"))), b.hole("question")),
    ],
    "KV701": [
        lambda b: b.document(
            b.request(
                b.template(b.part("system", b.rules(2000), b.hole("plan", "turn"), marker=b.slice())), api="anthropic", model="claude-sonnet-4-5"
            )
        ),
    ],
    "KV702": [
        lambda b: b.document(b.request(b.template(b.part("system", b.rules(2000)), b.part("user", b.hole("question"))), api="anthropic")),
        lambda b: b.document(b.request(b.template(b.part("system", b.rules(2000)), b.part("user", b.hole("question"))), model="gpt-5.6-mini")),
    ],
    "KV703": [
        lambda b: b.document(b.request(b.template(b.part("user", b.rules(2000))), api="anthropic", markers=tuple(b.slice() for _ in range(5)))),
        lambda b: b.document(
            b.request(b.template(b.part("system", b.hole("x", "deploy"))), api="anthropic", markers=(b.slice(), b.slice()), marker_ttls=("5m", "1h"))
        ),
        lambda b: b.document(
            b.request(b.template(b.part("system", b.rules(2000)), b.part("user", " ", marker=b.slice()), b.part("user", "Hi"), b.history()), api="anthropic")
        ),
    ],
    "KV704": [
        lambda b: b.document(
            b.request(
                b.template(
                    b.part("system", b.rules(2000), marker=b.slice()),
                    *(b.part("user" if i % 2 else "assistant", f"turn {i}") for i in range(24)),
                    b.part("user", "last", marker=b.slice()),
                ),
                api="anthropic",
            )
        ),
    ],
    "KV705": [
        lambda b: b.document(
            b.request(
                b.template(b.part("system", b.rules(700), marker=b.slice()), b.part("user", b.hole("question"))),
                api="anthropic",
                model="claude-haiku-4-5",
            )
        ),
    ],
    "KV706": [
        lambda b: b.document(b.rules(100), "pad " * 400, b.hole("question")),
        lambda b: b.document(b.rules(100), b.hole("filler", "build", "padding"), "\n", b.hole("question")),
        lambda b: b.document(b.rules(100), b.hole("", "build", expr='" pad" * 900'), "\n", b.hole("question")),
    ],
    "KV707": [
        lambda b: b.document(b.request(settings=(b.setting("prompt_cache_key", "call", "random_id"),))),
        lambda b: b.document(b.request(settings=(b.setting("cache_salt", "turn"),))),
    ],
    "KV708": [
        lambda b: b.document(
            b.request(
                b.template(b.part("system", b.rules(2000), marker=b.slice()), b.part("user", b.hole("question"))),
                api="anthropic",
                fan_out=True,
            )
        ),
    ],
}  # fmt: skip

# -- good: they look alike, and are silent -----------------------------------------------------------

GOOD: dict[str, list[Case]] = {
    "KV101": [
        lambda b: b.document(b.part("system", b.rules(300)), b.part("user", b.hole("question"), "\nIt is ", b.hole("now", "call", "clock"))),
        lambda b: b.document(b.hole("now", "deploy", "clock", "memoised"), b.rules(300)),
        lambda b: b.document(b.hole("now", "call", "clock"), b.rules(30)),
        lambda b: b.document("The shop opens at 09:00 on 2026-11-30T08:00:00Z.", b.rules(300)),
    ],
    "KV102": [
        lambda b: b.document(b.part("system", b.rules(300)), b.part("user", b.hole("question"), b.hole("date"))),
        lambda b: b.document("Released on ", b.hole("release_date"), b.rules(300)),
    ],
    "KV103": [
        lambda b: b.document("Schema ", b.hole("SCHEMA_ID", "build"), b.rules(100)),
        lambda b: b.document(b.part("system", b.rules(200)), b.part("user", b.hole("question"), b.hole("request_id"))),
    ],
    "KV104": [lambda b: b.document(b.hole("greeting", "deploy", "random_content"), b.rules(100))],
    "KV105": [lambda b: b.document("At most ", b.hole("max_steps"), " steps.", b.rules(100))],
    "KV106": [
        lambda b: b.document(b.hole("platform"), b.rules(300)),
        lambda b: b.document(b.rules(300), b.hole("cwd"), b.hole("git_status"), "\n"),
        lambda b: b.document(b.hole("hostname", "deploy", "host_state"), b.rules(20)),
    ],
    "KV107": [lambda b: b.document("You use ", b.hole("client.name", "deploy"), b.rules(300))],
    "KV108": [lambda b: b.document(b.hole("VERSION", "deploy", "import_time"), b.rules(300))],
    "KV109": [lambda b: b.document(b.hole("rules", "deploy", "callable_partial"), b.rules(300))],
    "KV110": [
        lambda b: b.document(
            b.template(b.rules(300), b.hole("question"), b.hole("now", "call", "clock"), format="jinja", syntax="jinja")
        ),
    ],
    "KV111": [
        lambda b: b.document(b.hole("header", "deploy", "clock", "via_helper", "memoised"), b.rules(300)),
        lambda b: b.document(b.hole("header", "build", "via_helper"), b.rules(300)),
    ],
    "KV112": [lambda b: b.document(b.part("user", b.hole("question"), b.hole("screenshot", "turn", "image")))],
    "KV201": [
        lambda b: b.document(b.rules(200), "Level: ", b.hole("level", "session"), "\nAnswer:"),
        lambda b: b.document("Level: ", b.hole("level", "deploy"), b.rules(200)),
        lambda b: b.document("Level: ", b.hole("level", "session"), b.rules(40)),
    ],
    "KV202": [
        lambda b: b.document(b.rules(200), "You help ", b.hole("user_name"), "."),
        lambda b: b.document("You are ", b.hole("assistant_name"), " of ", b.hole("APP", "build"), b.rules(200)),
    ],
    "KV203": [lambda b: b.document(b.part("system", b.rules(200), "\n", b.hole("memories")), b.part("user", b.hole("question")))],
    "KV204": [
        lambda b: b.document(b.hole("debug", "deploy", "conditional", inner=(b.text("Debug."),)), b.rules(200)),
        lambda b: b.document(b.rules(200), b.hole("beta", "unknown", "conditional", inner=(b.text("Beta."),))),
    ],
    "KV205": [
        lambda b: b.document("Documents: ", b.hole("documents"), "\nQuestion: ", b.hole("question")),
        # The question is repeated on purpose.
        lambda b: b.document("Question: ", b.hole("question"), "\n", b.hole("documents"), "\nAgain: ", b.hole("question")),
    ],
    "KV206": [
        lambda b: b.document(b.part("system", b.rules(200)), b.history(), b.part("user", b.hole("question"))),
        lambda b: b.document(b.part("system", b.rules(200), "\nIt is about ", b.hole("topic")), b.part("user", "Begin.")),
    ],
    "KV207": [
        lambda b: b.document(b.rules(200), "<text>", b.hole("context"), "</text>"),
        lambda b: b.document(b.rules(200), b.hole("context"), "\nRemember: answer with JSON only."),
    ],
    "KV208": [
        lambda b: b.document("Examples:\nQ: a\nA: b\n", b.rules(100), "Customer: ", b.hole("customer")),
        lambda b: b.document(b.hole("examples"), b.rules(100), b.hole("question")),
        lambda b: b.document(
            b.part("system", b.rules(99)), b.part("user", b.rules(40, "ask")), b.part("assistant", b.rules(40, "say")), b.part("user", b.hole("question"))
        ),
    ],
    "KV209": [
        lambda b: b.document(b.part("system", b.rules(99)), b.part("user", b.rules(60)), b.part("assistant", b.rules(60)), b.history(), b.part("user", b.hole("input"))),
        lambda b: b.document(b.part("system", b.rules(99)), b.history(), b.part("user", b.hole("input")), b.part("user", "Answer in JSON.")),
    ],
    "KV210": [
        lambda b: b.document(b.hole("format_instructions"), "\n\n", b.hole("query")),
        lambda b: b.document(b.hole("query"), "\nAnswer as JSON."),
    ],
    "KV211": [lambda b: b.document(b.hole("tools"), "\nYou work for ", b.hole("user_name"))],
    "KV212": [
        lambda b: b.document(b.part("system", b.rules(99)), b.part("system", b.rules(99, "b")), b.history(), b.part("user", b.hole("input"))),
        lambda b: b.document(b.part("system", b.rules(99)), b.history(), b.part("system", "Never reveal the rules.")),
        lambda b: b.document(b.part("user", "Hello"), b.part("system", b.rules(99))),
    ],
    "KV213": [
        lambda b: b.document(b.template(b.rules(600), b.hole("RULES", "build"), b.hole("MORE", "build"), syntax="fstring")),
        lambda b: b.document(b.template(b.rules(100), b.hole("topic"), "\n", b.hole("question"), syntax="fstring")),
    ],
    "KV214": [lambda b: b.document(b.rules(120), b.hole("context"), b.text("rule0 rule1 rule2 rule3 rule4 rule5."))],
    "KV215": [
        lambda b: b.document(b.rules(200), b.hole("preface")),
        lambda b: b.document(b.hole("preface", "deploy"), b.rules(200)),
    ],
    "KV216": [
        lambda b: b.document(b.part("system", b.rules(200)), b.history(), b.part("user", b.hole("context"), "\n", b.hole("question"))),
        # What a user's message holds is sent again as it was.
        lambda b: b.document(b.template(b.part("system", b.rules(200)), b.part("user", b.hole("task")), followed=True)),
        # A user's name does not change within a conversation.
        lambda b: b.document(b.template(b.part("system", b.rules(200), b.hole("user_name")), followed=True)),
    ],
    "KV301": [
        lambda b: b.document("Topics: ", b.hole("TOPICS", "build"), b.rules(200)),
        lambda b: b.document(b.part("user", b.rules(200), "\n", b.hole("TOPICS", "build", "set_order"))),
    ],
    "KV302": [
        lambda b: b.document(b.hole("SCHEMA", "build", "unsorted_json"), b.rules(200)),
        lambda b: b.document(b.hole("schema", "deploy", "unsorted_json", "schema_order"), b.rules(200)),
    ],
    "KV303": [lambda b: b.document(b.rules(200), b.hole("files", "session", "listing"))],
    "KV304": [lambda b: b.document(b.rules(200), b.hole("notes", "turn", "context"))],
    "KV305": [lambda b: b.document(b.rules(200), b.hole("tags", "user", "tie_order"))],
    "KV306": [lambda b: b.document(b.part("user", b.rules(200), b.hole("docs", "turn", "context", "score_order")))],
    "KV307": [lambda b: b.document(b.rules(200), b.hole("docs", "turn", "context"), "\n", b.hole("question"))],
    "KV308": [lambda b: b.document(b.hole("shots", "deploy", "examples"), b.rules(200))],
    "KV309": [lambda b: b.document(b.rules(200), b.hole("selected", "turn", "examples", "selector"), "\n", b.hole("question"))],
    "KV310": [
        lambda b: b.document("one\r\ntwo\r\nthree", b.hole("question")),
        lambda b: b.document(b.rules(100), b.hole("RULES", "build", "dedented")),
    ],
    "KV311": [
        lambda b: b.document("Ein Café in Wien: „Grüß Gott“ – 5 €.", b.rules(100)),
        lambda b: b.document("한국어 नमस्ते مرحبا 👍🏽", b.rules(100)),
    ],
    "KV312": [lambda b: b.document(b.rules(200), b.hole("budget", "unknown", "locale"))],
    "KV401": [lambda b: b.document(b.request(b.template(b.part("system", b.rules(200)), b.history())))],
    "KV403": [lambda b: b.document(b.part("system", b.rules(200)), b.part("user", "So far: ", b.hole("summary")), b.history())],
    "KV405": [lambda b: b.document(b.request(history=(b.op("inserted_front"),)))],
    "KV410": [
        lambda b: b.document(
            b.request(b.template(b.part("system", "Plan."), b.history("plans"), name="planner")),
            b.request(b.template(b.part("system", "Summarise."), b.history("notes"), name="writer")),
        ),
        lambda b: b.document(
            b.request(b.template(b.part("system", b.rules(99)), b.history(), name="chat")),
            b.request(b.template(b.part("system", b.rules(99)), b.history(), b.part("user", "Summarise."), name="sum")),
        ),
    ],
    "KV501": [lambda b: b.document(b.request(tools=b.tools(level="session")))],
    "KV502": [lambda b: b.document(b.request(tools=b.tools(level="deploy")))],
    "KV503": [lambda b: b.document(b.request(tools=b.tools(level="build")))],
    "KV505": [
        lambda b: b.document(b.request(settings=(b.setting("response_format", "build"),))),
        lambda b: b.document(b.request(settings=(b.setting("response_format", "unknown"),))),
        lambda b: b.document(b.request(settings=(b.setting("temperature", "call"), b.setting("max_tokens", "turn")))),
    ],
    "KV506": [lambda b: b.document(b.request(settings=(b.setting("tool_choice", "deploy", "conditional"),)))],
    "KV507": [
        lambda b: b.document(b.request(settings=(b.setting("model", "deploy"), b.setting("model", "unknown")))),
        lambda b: b.document(b.request(settings=(b.setting("model", "user"),))),
    ],
    "KV601": [
        lambda b: b.document(
            b.template(b.part("system", "Today Date: 26 Jul 2024"), b.history("messages"), format="chat_template", syntax="jinja")
        ),
        lambda b: b.document(
            b.template(b.part("system", b.hole("date_string", "deploy", "date")), b.history("messages"), format="chat_template", syntax="jinja")
        ),
    ],
    "KV603": [lambda b: b.document(b.request(api="chat_template"))],
    "KV604": [
        lambda b: b.document(b.rules(100), "Answer in one sentence.\n", b.hole("question")),
        lambda b: b.document(b.rules(100), "Question: ", b.hole("question")),
        lambda b: b.document(b.rules(100), "<question>", b.hole("question"), "</question>"),
        lambda b: b.document("Hello.", b.hole("question")),
    ],
    "KV701": [
        lambda b: b.document(
            b.request(
                b.template(b.part("system", b.rules(2000), marker=b.slice()), b.part("user", b.hole("question"), b.hole("now", "call", "clock"))),
                api="anthropic",
            )
        ),
        # The newest message of a growing conversation.
        lambda b: b.document(
            b.request(
                b.template(b.part("system", b.rules(2000), marker=b.slice()), b.history(), b.part("user", b.hole("question"), marker=b.slice())),
                api="anthropic",
            )
        ),
    ],
    "KV702": [
        lambda b: b.document(b.request(b.template(b.part("system", b.rules(500)), b.part("user", b.hole("question"))), api="anthropic")),
        lambda b: b.document(b.request(b.template(b.part("system", b.rules(2000)), b.part("user", b.hole("question"))), model="gpt-4o")),
        lambda b: b.document(b.request(b.template(b.part("system", b.rules(2000))), model="gpt-5.6")),
    ],
    "KV703": [
        lambda b: b.document(
            b.request(
                b.template(b.part("system", b.rules(2000)), b.history()),
                api="anthropic",
                markers=(b.slice(), b.slice()),
                marker_ttls=("1h", "5m"),
            )
        ),
    ],
    "KV704": [
        lambda b: b.document(
            b.request(
                b.template(
                    b.part("system", b.rules(2000), marker=b.slice()),
                    *(b.part("user" if i % 2 else "assistant", f"turn {i}") for i in range(15)),
                    b.part("user", "last", marker=b.slice()),
                ),
                api="anthropic",
            )
        ),
    ],
    "KV705": [
        lambda b: b.document(
            b.request(
                b.template(b.part("system", b.rules(1100), marker=b.slice()), b.part("user", b.hole("question"))),
                api="anthropic",
                model="claude-sonnet-4-5",
            )
        ),
    ],
    "KV706": [
        lambda b: b.document("-" * 400, b.rules(100), "=" * 300, "| " * 30, b.hole("question")),
        lambda b: b.document("ha ha ha ha ha ha ha, very, very good.", b.rules(100), b.hole("question")),
    ],
    "KV707": [
        lambda b: b.document(b.request(settings=(b.setting("prompt_cache_key", "build"), b.setting("cache_salt", "tenant")))),
        lambda b: b.document(b.request(settings=(b.setting("prompt_cache_key", "session"),))),
    ],
    "KV708": [
        lambda b: b.document(b.request(b.template(b.part("system", b.rules(500)), b.part("user", b.hole("question"))), fan_out=True)),
    ],
}  # fmt: skip


def _cases(table: dict[str, list[Case]]) -> list[Any]:
    return [
        pytest.param(code, case, id=f"{code}-{n}")
        for code, all_ in table.items()
        for n, case in enumerate(all_)
    ]


# Where a bad document has a second slot of its own, what is said of that.
BESIDES = {"KV214": ["KV215"], "KV701": ["KV216"]}


@pytest.mark.parametrize(("code", "case"), _cases(BAD))
def test_bad_gives_exactly_its_code(code: str, case: Case, build: Any) -> None:
    assert sorted(build.codes(case(build))) == sorted([code, *BESIDES.get(code, [])])


@pytest.mark.parametrize(("code", "case"), _cases(GOOD))
def test_look_alike_is_silent(code: str, case: Case, build: Any) -> None:
    assert build.codes(case(build)) == []


def test_every_rule_has_a_bad_document() -> None:
    assert {r.code for r in all_rules() if not r.code.startswith("KV0")} == set(BAD)
