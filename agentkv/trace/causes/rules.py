"""Names and advice of the lint rules that a log can point at, and which mending belongs to them.

Codes and names are those of `agentkv rule --all`; this room stands below the linter and imports
nothing of it.
"""

from __future__ import annotations

from typing import NamedTuple


class Said(NamedTuple):
    """`fix`: the name of a mending of `trace what-if`, None where there is none."""

    name: str
    advice: str
    fix: str | None


_TAIL = "Put it at the end of the last user message, behind everything that stays."
_APPEND = "Append only; when the context is full, cut rarely and in large steps."

RULES: dict[str, Said] = {
    "KV101": Said("timestamp-in-prefix", f"A clock changes in every call. {_TAIL}", "volatile"),
    "KV102": Said("date-in-prefix", f"A date stands in front of fixed text. {_TAIL}", "volatile"),
    "KV103": Said(
        "random-id-in-prefix", "Send the id as metadata of the request, not as text.", "volatile"
    ),
    "KV104": Said(
        "random-content-in-prefix", "Choose one text, or put it behind the fixed ones.", "volatile"
    ),
    "KV105": Said("counter-in-prefix", f"A counter changes in every call. {_TAIL}", "volatile"),
    "KV106": Said("host-state-in-prefix", f"The state of a machine changes. {_TAIL}", "volatile"),
    "KV107": Said(
        "object-repr-in-prompt", "Write the object's data, not its address in memory.", "volatile"
    ),
    "KV112": Said(
        "image-reencoded",
        "Encode a picture once, keep the bytes (or an address without a signature), and put "
        "pictures behind fixed text.",
        "image",
    ),
    "KV201": Said(
        "dynamic-before-static", "Put what changes behind the text that stays.", "volatile"
    ),
    "KV202": Said(
        "user-data-before-shared",
        "Put the shared text first and the user's data behind it.",
        "volatile",
    ),
    "KV203": Said(
        "memory-in-system-prompt",
        "Put memories in a message behind the shared instructions.",
        "volatile",
    ),
    "KV204": Said(
        "conditional-section-head",
        "Put sections that are there only sometimes behind those that always are.",
        None,
    ),
    "KV205": Said(
        "question-before-documents", "Put the documents first and the question last.", "question"
    ),
    "KV206": Said("question-in-system", "Put the question in the last user message.", "volatile"),
    "KV207": Said(
        "context-before-instructions",
        "Put the instructions first and the documents behind them.",
        "question",
    ),
    "KV210": Said(
        "schema-text-after-dynamic",
        "Describe the format of the answer in front of what changes.",
        "question",
    ),
    "KV302": Said("unsorted-json", "Dump the data with sorted keys.", "json"),
    "KV303": Said("unsorted-listing", "Sort the list before it is written.", "order"),
    "KV306": Said(
        "retrieved-docs-order",
        "Keep documents in the order in which they first stood, or sort them by id.",
        "documents",
    ),
    "KV308": Said("fewshot-shuffle", "Use the same examples in the same order.", "examples"),
    "KV309": Said(
        "fewshot-selector-dynamic", "Put chosen examples behind the fixed text.", "volatile"
    ),
    "KV310": Said(
        "whitespace-drift", "Write line ends, indents and blanks in one way.", "whitespace"
    ),
    "KV311": Said(
        "unicode-drift", "Normalise the text (NFC), and drop invisible characters.", "whitespace"
    ),
    "KV312": Said(
        "locale-format-drift", "Write numbers and dates in one fixed format (ISO).", "locale"
    ),
    "KV401": Said("history-front-truncation", _APPEND, "history"),
    "KV402": Said(
        "history-edited-in-place",
        "Leave messages as they were sent; add a new one, or clear in large, rare steps.",
        "history",
    ),
    "KV403": Said(
        "history-summarised-into-head",
        "Put the summary in a message behind the instructions.",
        "volatile",
    ),
    "KV405": Said("message-inserted-mid-history", _APPEND, "history"),
    "KV406": Said(
        "reasoning-stripped",
        "Send the thoughts back as they came, if the model's template allows it.",
        "reasoning",
    ),
    "KV407": Said(
        "assistant-turn-reserialised",
        "Keep the answer's own bytes, and send those back.",
        "history",
    ),
    "KV408": Said("mid-prefix-trim", _APPEND, "history"),
    "KV501": Said("tool-order-unstable", "Sort tools by name, or keep the first order.", "tools"),
    "KV502": Said(
        "dynamic-tool-set",
        "Send all tools in every call, and say which are allowed (`allowed_tools`).",
        "tools",
    ),
    "KV503": Said(
        "dynamic-tool-schema",
        "Keep values of the run time out of tool definitions; say them in a message.",
        "tools",
    ),
    "KV504": Said(
        "tool-serialisation-drift", "Dump tool definitions with one order of keys.", "tools"
    ),
    "KV505": Said(
        "response-format-varies", "Send one schema of the answer in every call of a site.", None
    ),
    "KV507": Said("model-varies", "Keep one model for a session: each has a cache of its own.",
                  "model"),
    "KV602": Said(
        "chat-template-tail-dependent",
        "The chat template writes old parts elsewhere as the conversation grows; see whether it "
        "has a switch, or take another template.",
        None,
    ),
    "KV603": Said(
        "reasoning-stripped-by-template",
        "The chat template leaves old thoughts out; see whether it has a switch to keep them.",
        None,
    ),
    "KV707": Said(
        "cache-key-misuse", "Use one cache key (or salt) for all calls that share text.", "model"
    ),
}  # fmt: skip

PLAIN = Said(
    "changed-text", "Text in front of what stays was changed; see the first example.", None
)
EVICTED = Said("evicted", "The cache was too small for what was in use: give it more room.", None)


def said(rule: str | None, reason: str) -> Said:
    """What is said of a cause."""
    if rule is not None:
        return RULES[rule]
    return EVICTED if reason == "evicted" else PLAIN
