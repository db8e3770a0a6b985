"""The grammar of an answer, in llguidance's dialect of Lark.

    start: thought? ( text | text OPENER calls | calls | json )

Which of these depends on the request. Free text stops being free at the opener: from there on the
grammar holds until the last call is closed, and then only the end of the turn may follow.

Added tokens (`<tool_call>` is one for Qwen) are named by their ids, since the grammar engine takes
none of them for the text that they show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentkv.engine.text.calls.script import Script

ThoughtState = Literal["never", "maybe", "open"]
"""Whether an answer may begin with a thought, or is inside one already."""
TextState = Literal["none", "free", "score"]
"""Whether an answer may be plain text instead of calls: `free`, which may also precede them, or
`score`, where the first token decides."""

_ANY = "/(?s:.+)/"


def write_grammar(
    script: Script,
    *,
    calls: Sequence[tuple[str, Mapping[str, Any]]] = (),
    most: int = 1,
    text: TextState = "none",
    document: Mapping[str, Any] | None = None,
    thought: ThoughtState = "never",
) -> str:
    """Lark text of an answer.

    `calls`: names and vetted schemas of the tools that may be called, at most `most` times; empty
    for none. `document`: a vetted schema; then an answer's text is a JSON document of it.
    """
    rules: list[str] = []
    body: list[str] = []
    plain = document is None and text != "none"
    if calls and document is not None and script.form.at_start:
        # A call is a JSON document itself: both are told apart inside one kind of grammar only.
        for index, (name, schema) in enumerate(calls):
            body.append(f"call_{index}")
            rules.append(f"call_{index}: %json {_as_document(script, name, schema)}")
    elif calls:
        body.append(_calling(script, rules, text if plain else "none", thought))
        rules += _calls(script, calls, most)
    if document is not None:
        body.append("document")
        rules.append(f"document: %json {json.dumps(document, ensure_ascii=False)}")
    elif plain:
        body.append("TEXT?")
        rules.append(f"TEXT: {_text(script, text, thought)}")
    start = " | ".join(body)
    if thought != "never":
        rules.append(_thought(script, thought))
        rules.append(f"body: {start}")
        # Line ends behind a thought: part of the text where there may be text.
        start = _join("thought", "" if plain else '"\\n\\n"?')
        start = f"({start})? body" if thought == "maybe" else f"{start} body"
    return "\n".join([f"start: {start}", *rules]) + "\n"


def _calling(script: Script, rules: list[str], text: TextState, thought: ThoughtState) -> str:
    """The alternative that calls tools: what may precede the opener, the opener, the calls."""
    opener = _term(script, script.opener)
    lead = f"{_term(script, script.lead)}?" if script.lead else ""
    free = text == "free" and not script.form.at_start
    if script.token(script.opener) is not None:
        if text != "none" and not free and thought != "never":
            rules.append(r"SPACE: /\s+/")
            lead = "SPACE?"
        return _join("TEXT?" if free else lead, opener, "calls")
    if free or (text != "none" and thought != "never"):
        # One lexeme with the text before it: the opener is found wherever it stands in a token.
        before = "(?s:.*)" if free else r"\s*"
        barred = _no_thought(script, thought)
        rules.append(f"until[lazy]: UNTIL\nUNTIL: /{before}{_escaped(script.opener)}/{barred}")
        return "until calls"
    return _join(lead, opener, "calls")


def _text(script: Script, text: TextState, thought: ThoughtState) -> str:
    """The terminal for text that begins no call."""
    terms = [_ANY]
    if not script.sealed(script.opener):
        if script.form.at_start:
            terms.append(f"~{_starting(script.opener)}")
        else:
            terms.append(f"~/(?s:.*){_escaped(script.opener)}(?s:.*)/")
            if text == "score":
                terms[0] = f"/[^{_escaped(script.opener[0])}](?s:.*)/"
    return " & ".join(terms) + _no_thought(script, thought)


def _no_thought(script: Script, thought: ThoughtState) -> str:
    """What keeps a terminal from beginning with a thought."""
    if thought != "maybe" or script.sealed(script.think):
        return ""
    return f" & ~{_starting(script.think)}"


def _thought(script: Script, thought: ThoughtState) -> str:
    """The rule for a thought, or for the rest of one."""
    if script.token(script.unthink) is not None:
        begin = _term(script, script.think) if thought == "maybe" else ""
        return "thought: " + _join(begin, f"{_ANY}?", _term(script, script.unthink))
    begin = _escaped(script.think) if thought == "maybe" else ""
    return f"thought[lazy]: /{begin}(?s:.*){_escaped(script.unthink)}/"


def _calls(script: Script, calls: Sequence[tuple[str, Mapping[str, Any]]], most: int) -> list[str]:
    """The rules for what follows the opener."""
    opened, close = _term(script, script.open), _term(script, script.close)
    times = f"{{0,{most - 1}}}"
    if most == 1:
        again = after = ""
    elif script.sep is not None:
        again, after = f"({_join(_term(script, script.sep), 'call')}){times}", ""
    else:
        block = _term(script, script.gap + script.opener + script.open)
        again, after = "", f"({_join(block, 'call', close)}){times}"
    rules = ["calls: " + _join(opened, "call", again, close, after)]
    rules.append("call: " + " | ".join(f"call_{i}" for i in range(len(calls))))
    for index, (name, schema) in enumerate(calls):
        written = json.dumps(name, ensure_ascii=False) if script.form.quoted else name
        head = _term(script, script.head + written + script.middle)
        arguments = json.dumps(schema, ensure_ascii=False)
        tail = _term(script, script.tail)
        rules.append(f"call_{index}: {_join(head, f'arguments_{index}', tail)}")
        rules.append(f"arguments_{index}: %json {arguments}")
    return rules


def _as_document(script: Script, name: str, schema: Mapping[str, Any]) -> str:
    """A call as the schema of one JSON object."""
    key = script.middle.split('"')[1]
    inner = {k: _moved(v, f"#/properties/{key}") for k, v in schema.items() if k != "x-guidance"}
    whole = {
        "type": "object",
        "properties": {"name": {"const": name}, key: inner},
        "required": ["name", key],
        "additionalProperties": False,
        **({"x-guidance": schema["x-guidance"]} if "x-guidance" in schema else {}),
    }
    return json.dumps(whole, ensure_ascii=False)


def _moved(value: Any, root: str) -> Any:
    """A part of a schema whose root is now found at `root`."""
    if isinstance(value, list):
        return [_moved(item, root) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: root + item[1:]
        if key == "$ref" and isinstance(item, str) and item.startswith("#")
        else _moved(item, root)
        for key, item in value.items()
    }


def _join(*terms: str) -> str:
    return " ".join(term for term in terms if term)


def _term(script: Script, text: str) -> str:
    """`text` as a sequence of Lark terms."""
    return " ".join(
        f"<[{term}]>" if isinstance(term, int) else json.dumps(term, ensure_ascii=False)
        for term in script.terms(text)
    )


def _starting(text: str) -> str:
    return rf"/\s*{_escaped(text)}(?s:.*)/"


def _escaped(text: str) -> str:
    """`text` inside `/.../`: a regular expression that matches just it."""
    return re.sub(r"([^\w\s<>\"':,;@%=!-])", r"\\\1", text).replace("\n", "\\n")
