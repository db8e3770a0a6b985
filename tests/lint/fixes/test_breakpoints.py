"""Safe fixes of ties (KV305), marker limits (KV703) and look-back (KV704)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Fix = Callable[..., str]
EPHEMERAL: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
LONG = "Answer only from the documents that you are given, and name the one that you used. " * 200


def request(*messages: dict[str, Any], system: Any = LONG, **more: Any) -> str:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "system": system,
        "messages": list(messages),
    }
    return json.dumps({**body, **more}, indent=1)


def block(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def results(number: int, *, last: dict[str, Any] | None = None) -> dict[str, Any]:
    """One message with many tool results."""
    content: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"row {n}"}
        for n in range(number)
    ]
    content[-1] |= last or {}
    return {"role": "user", "content": content}


def sent(text: str) -> Any:
    """A request without its markers."""
    if isinstance(text, dict):
        return {k: sent(v) for k, v in text.items() if k not in EPHEMERAL}
    return [sent(v) for v in text] if isinstance(text, list) else text


def marked(text: str) -> list[str]:
    """What carries a marker, in order."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "cache_control" in value:
                found.append(str(value.get("tool_use_id") or value.get("text", ""))[:12])
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(json.loads(text))
    return found


# -- KV704 -----------------------------------------------------------------------------------------

SYSTEM = [block(LONG, **EPHEMERAL)]


@pytest.mark.parametrize(("number", "found"), [(20, False), (21, True), (24, True), (40, True)])
def test_blocks_of_one_message_are_counted(number: int, found: bool, propose: Any) -> None:
    text = request(results(number, last=EPHEMERAL), system=SYSTEM)
    codes = [f.code for f in propose("r.json", text)]
    assert codes == (["KV704"] if found else [])


def test_blocks_behind_the_last_marker(propose: Any) -> None:
    text = request(results(24), system=SYSTEM)
    (found,) = [f for f in propose("r.json", text) if f.code == "KV704"]
    assert found.message.startswith("24 blocks stand behind the last cache marker")
    several = [{"role": "user", "content": "a"}, results(8, last=EPHEMERAL), results(9)]
    assert [f.code for f in propose("r.json", request(*several, system=SYSTEM))] == []


def test_blocks_in_python(propose: Any) -> None:
    def code(number: int) -> str:
        rows = "".join(
            f'                {{"type": "text", "text": "row {n}"}},\n' for n in range(number)
        )
        return (
            "import anthropic\n\n"
            f'RULES = """{LONG}"""\n\n\n'
            "def ask():\n"
            "    return anthropic.Anthropic().messages.create(\n"
            '        model="claude-sonnet-4-5",\n        max_tokens=9,\n'
            '        system=[{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}],\n'
            '        messages=[\n            {"role": "user", "content": [\n'
            f"{rows}"
            '                {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}},\n'
            "            ]},\n        ],\n    )\n"
        )

    assert "KV704" in [f.code for f in propose("a.py", code(24))]
    assert "KV704" not in [f.code for f in propose("a.py", code(15))]


def test_a_marker_is_set_between_two(fix: Fix) -> None:
    text = request(results(24, last=EPHEMERAL), system=SYSTEM)
    made = fix("r.json", text, unsafe=False)
    assert marked(made) == [LONG[:12], "t14", "t23"]
    assert sent(json.loads(made)) == sent(json.loads(text))
    assert fix("r.json", made, unsafe=False) == made


def test_a_marker_on_a_message_that_is_a_text(fix: Fix) -> None:
    turns: list[dict[str, Any]] = [
        {"role": "assistant" if n % 2 else "user", "content": f"turn {n}"} for n in range(24)
    ]
    turns.append({"role": "user", "content": [block("end", **EPHEMERAL)]})
    made = fix("r.json", request(*turns, system=SYSTEM), unsafe=False)
    assert marked(made) == [LONG[:12], "turn 14", "end"]
    assert json.loads(made)["messages"][14]["content"] == [block("turn 14", **EPHEMERAL)]


def test_no_fifth_marker(propose: Any) -> None:
    text = request(
        results(2, last=EPHEMERAL),
        results(2, last=EPHEMERAL),
        results(30, last=EPHEMERAL),
        system=SYSTEM,
    )
    (found,) = [f for f in propose("r.json", text) if f.code == "KV704"]
    assert found.fix.edits == () and "4 are allowed" in found.fix.refused


# -- KV703 -----------------------------------------------------------------------------------------


def test_surplus_markers_go(fix: Fix) -> None:
    blocks = [block(f"{n} {LONG[:900]}", **EPHEMERAL) for n in range(6)]
    text = request({"role": "user", "content": "Hi"}, system=blocks)
    made = fix("r.json", text, unsafe=False)
    assert [m[0] for m in marked(made)] == ["0", "3", "4", "5"]
    assert sent(json.loads(made)) == sent(json.loads(text))
    assert fix("r.json", made, unsafe=False) == made


@pytest.mark.parametrize("first", [{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "5m"}])
def test_the_longer_lifetime_first(first: dict[str, str], fix: Fix) -> None:
    hour = {"type": "ephemeral", "ttl": "1h"}
    blocks = [block(LONG, cache_control=first), block("b" * 9, cache_control=hour)]
    made = fix("r.json", request({"role": "user", "content": "Hi"}, system=blocks), unsafe=False)
    assert [b["cache_control"] for b in json.loads(made)["system"]] == [hour, hour]


def test_a_lifetime_that_has_a_name_stays(propose: Any) -> None:
    code = (
        "import anthropic\n\nSHORT = {'type': 'ephemeral'}\n"
        f'RULES = """{LONG}"""\n\n\n'
        "def ask(question):\n"
        "    return anthropic.Anthropic().messages.create(\n"
        "        model='claude-sonnet-4-5', max_tokens=9,\n"
        "        system=[{'type': 'text', 'text': RULES, 'cache_control': SHORT},\n"
        "            {'type': 'text', 'text': RULES, 'cache_control': "
        "{'type': 'ephemeral', 'ttl': '1h'}}],\n"
        "        messages=[{'role': 'user', 'content': question}],\n    )\n"
    )
    (found,) = [f for f in propose("a.py", code) if f.code == "KV703"]
    assert found.fix is None or not found.fix.edits


def test_the_marker_of_an_empty_text_goes(fix: Fix) -> None:
    empty = {"role": "user", "content": [block(" ", **EPHEMERAL)]}
    again = {"role": "user", "content": "Hi"}
    made = fix("r.json", request(empty, again, system=SYSTEM), unsafe=False)
    assert json.loads(made)["messages"] == [{"role": "user", "content": [block(" ")]}, again]


# -- KV305 -----------------------------------------------------------------------------------------


def ranked(expression: str) -> str:
    return (
        "from collections import Counter\n\n\ndef ask(client, words):\n"
        "    counts = Counter(words)\n"
        f"    frequent = ', '.join(word for word, _ in {expression})\n"
        "    return client.chat.completions.create(\n        model='m',\n        messages=[\n"
        "            {'role': 'system', 'content': f\"{frequent}\\n"
        f'{LONG[:600]}"}},\n'
        "            {'role': 'user', 'content': 'Go on.'},\n        ],\n    )\n"
    )


KEY = "key=lambda pair: (-pair[1], str(pair[0]))"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("counts.most_common(20)", f"sorted(counts.items(), {KEY})[:20]"),
        ("counts.most_common()", f"sorted(counts.items(), {KEY})"),
        ("Counter(words).most_common(n + 1)", f"sorted(Counter(words).items(), {KEY})[:n + 1]"),
        ("counts.most_common(None)", f"sorted(counts.items(), {KEY})"),
    ],
)
def test_equal_counts_are_sorted_by_what_is_counted(before: str, after: str, fix: Fix) -> None:
    made = fix("a.py", ranked(before), unsafe=False)
    assert made == ranked(after)
    assert fix("a.py", made, unsafe=False) == made
    compile(made, "a.py", "exec")


def test_the_sort_gives_the_same_words_in_one_order() -> None:
    from collections import Counter

    one, other = Counter("abcabd"), Counter("dbacba")
    top = [sorted(c.items(), key=lambda p: (-p[1], str(p[0])))[:3] for c in (one, other)]
    assert top[0] == top[1] == [("a", 2), ("b", 2), ("c", 1)]
    assert sorted(n for _, n in top[0]) == sorted(n for _, n in one.most_common(3))
