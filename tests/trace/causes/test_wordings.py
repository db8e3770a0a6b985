"""Causes in other words than those of `logs.py`: one log each, 24 requests, nothing else changing."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentkv.trace.analyse import analyse
from agentkv.trace.readers import read

Line = dict[str, Any]
Make = Callable[[int], Line]

RULES = "\n".join(
    f"- Policy {i}: the desk {verb} every {thing} before it is {end}."
    for i, (verb, thing, end) in enumerate(
        (v, t, e)
        for v in ("checks", "signs", "weighs")
        for t in ("parcel", "letter", "crate")
        for e in ("sent", "stored")
    )
)
WORDS = [
    "ash",
    "birch",
    "cedar",
    "elm",
    "fir",
    "hazel",
    "larch",
    "maple",
    "oak",
    "pine",
    "rowan",
    "spruce",
    "willow",
    "yew",
]
START = datetime(2026, 9, 11, 8, 0, 0)


def prose(words: int, seed: int) -> str:
    rng = random.Random(seed)
    lines = [
        " ".join(rng.choice(WORDS) for _ in range(9)).capitalize() + "." for _ in range(words // 9)
    ]
    return " ".join(lines)


def ask(i: int) -> str:
    return f"Question number {i}: what is the status of order {1000 + i * 37}?"


def talk(i: int) -> list[Line]:
    out: list[Line] = []
    for k in range(i):
        out.append({"role": "user", "content": ask(k)})
        reply = f"Order {1000 + k * 37} arrives in {k % 5 + 2} days; anything else about item {k}?"
        out.append({"role": "assistant", "content": reply})
    return [*out, {"role": "user", "content": ask(i)}]


def body(system: str | None, messages: list[Line], **fields: Any) -> Line:
    head = [] if system is None else [{"role": "system", "content": system}]
    return {"model": "m", "messages": [*head, *messages], **fields}


def one(i: int, text: str | None = None) -> list[Line]:
    return [{"role": "user", "content": ask(i) if text is None else text}]


def when(i: int, form: str, **step: int) -> str:
    return (START + timedelta(**{k: v * i for k, v in (step or {"minutes": 7}).items()})).strftime(
        form
    )


def ident(i: int, bits: int = 128) -> int:
    return random.Random(i * 7919).getrandbits(bits)


def pick(i: int, options: list[str]) -> str:
    return options[i % len(options)]


WHO = ["Maria Garcia", "John Smith", "Wei Chen", "Fatima Al-Sayed", "Olga Ivanova", "James O'Brien"]
NUMBERS = [["1,234.50", "98,765.43"], ["1.234,50", "98.765,43"], ["1 234,50", "98 765,43"]]
SHOTS = [
    (f"Review {k}: the {w} was fine, and I told others about it.", "good")
    for k, w in enumerate(WORDS[:6])
]
PAPERS = [prose(60, 70 + k) for k in range(6)]
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": f"look_{w}", "description": f"Looks for {w} in the yard.",
     "parameters": {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}}}}
    for w in WORDS[:7]
]  # fmt: skip


def mixed(i: int, items: list[Any]) -> list[Any]:
    return random.Random(i * 31).sample(items, len(items))


def edited(i: int, change: Callable[[int, str], str]) -> list[Line]:
    said = talk(i)
    return [{**m, "content": change(k, m["content"])} for k, m in enumerate(said[:-1])] + said[-1:]


def agent(i: int, result: Callable[[int, str], str] = lambda age, text: text) -> list[Line]:
    out: list[Line] = one(0, "Fix the failing test in the repository, please.")
    for k in range(i):
        call = {
            "name": TOOLS[k % 7]["function"]["name"],
            "arguments": json.dumps({"q": f"f{k}.py"}),
        }
        out.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{i}-{k}", "type": "function", "function": call}],
            }
        )
        out.append({"role": "tool", "tool_call_id": f"c{i}-{k}",
                    "content": result(i - k, f"result {k}: {prose(60, k)}")})  # fmt: skip
    return out


def picture(i: int) -> list[Line]:
    said = talk(i)
    url = f"https://cdn.example/a.png?X-Signature={ident(i):x}"
    said[0] = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}},
                                           {"type": "text", "text": ask(0)}]}  # fmt: skip
    return said


CASES: dict[str, tuple[str, Make]] = {
    "clock, iso": ("KV101", lambda i: body(f"Now: {when(i, '%Y-%m-%dT%H:%M:%S')}. {RULES}", one(i))),
    "clock, brackets": ("KV101", lambda i: body(f"You are Bot. [{when(i, '%H:%M')}] {RULES}", talk(i))),
    "clock, rfc": ("KV101", lambda i: body(f"{when(i, '%a, %d %b %Y %H:%M:%S +0000')}\n{RULES}", one(i))),
    "clock, epoch": ("KV101", lambda i: body(f"epoch_ms={1789000000000 + i * 61234}\n{RULES}", talk(i))),
    "clock, user": ("KV101", lambda i: body("You are Bot.", one(0, f"It's {when(i, '%H:%M:%S')}\n{RULES}\n\n{ask(i)}"))),
    "date": ("KV102", lambda i: body(f"Today is {when(i, '%A, %B %d', days=1)}. {RULES}", one(i))),
    "uuid": ("KV103", lambda i: body(f"conversation={uuid.UUID(int=ident(i))} {RULES}", one(i))),
    "hex": ("KV103", lambda i: body(f"<!-- {ident(i):032x} -->\n{RULES}", talk(i))),
    "request number": ("KV103", lambda i: body(f"Request #{10**9 + ident(i, 32)}\n{RULES}", one(i))),
    "counter": ("KV105", lambda i: body(f"This is turn {i + 1} of the conversation.\n{RULES}", talk(i))),
    "budget": ("KV105", lambda i: body(f"You have {8000 - i * 137} tokens left.\n{RULES}", talk(i))),
    "name": ("KV202", lambda i: body(f"You are a personal assistant of {pick(i, WHO)}. {RULES}", one(i))),
    "first name": ("KV202", lambda i: body(f"Hello {pick(i, WHO).split()[0]}, welcome!\n{RULES}", one(i))),
    "profile": ("KV202", lambda i: body(f"Customer profile: name={pick(i, WHO)}, plan={pick(i, ['gold', 'free'])}, "
                                        f"id={4000 + i % 6 * 13}\n{RULES}", one(i))),
    "name, user": ("KV202", lambda i: body(None, one(0, f"My name is {pick(i, WHO)}.\n{RULES}\n\n{ask(i)}"))),
    "tool keys": ("KV504", lambda i: body(RULES, one(i), tools=[json.loads(json.dumps(t, sort_keys=bool(i % 2))) for t in TOOLS])),
    "tools grow": ("KV502", lambda i: body(RULES, agent(i), tools=TOOLS[: 3 + i % 5])),
    "tool clock": ("KV503", lambda i: body(RULES, one(i), tools=[{**TOOLS[0], "function": {**TOOLS[0]["function"],
                   "description": f"Looks. Now: {when(i, '%Y-%m-%dT%H:%M:%S')}"}}, *TOOLS[1:]])),
    "tools mixed": ("KV501", lambda i: body(RULES, agent(i), tools=mixed(i, TOOLS))),
    "window": ("KV401", lambda i: body(RULES, talk(i)[-6:])),
    "window, no system": ("KV401", lambda i: body(None, talk(i)[-8:])),
    "window, task kept": ("KV401", lambda i: body(RULES, agent(i)[:1] + agent(i)[1:][-8:], tools=TOOLS)),
    "edit, first": ("KV402", lambda i: body(RULES, edited(i, lambda k, t: f"{t} (edited {i} times)" if k == 0 else t))),
    "edit, results": ("KV402", lambda i: body(RULES, agent(i, lambda age, t: "[cleared]" if age > 3 else t), tools=TOOLS)),
    "edit, cut": ("KV402", lambda i: body(RULES, agent(i, lambda age, t: t[:60] if age > 2 else t), tools=TOOLS)),
    "documents, headings": ("KV306", lambda i: body("Use these sources.\n" + "\n".join(
        f"### Source {k}\n{d}" for k, d in enumerate(mixed(i, PAPERS), 1)) + f"\n{RULES}", one(i))),
    "documents, blocks": ("KV306", lambda i: body(RULES, [{"role": "user", "content": [
        {"type": "text", "text": d} for d in [*mixed(i, PAPERS), ask(i)]]}])),
    "documents, messages": ("KV306", lambda i: body(RULES, [{"role": "system", "content": f"Document:\n{d}"}
                                                            for d in mixed(i, PAPERS)] + one(i))),
    "documents, tags": ("KV306", lambda i: body(RULES, one(0, "<docs>" + "".join(
        f"<doc id='{PAPERS.index(d)}'>{d}</doc>" for d in mixed(i, PAPERS)) + f"</docs>\n{ask(i)}"))),
    "question first": ("KV205", lambda i: body("You answer.", one(0, f"{ask(i)}\n\nDocuments:\n{RULES}"))),
    "question first, blocks": ("KV205", lambda i: body("You answer.", [{"role": "user", "content": [
        {"type": "text", "text": ask(i)}, {"type": "text", "text": RULES}]}])),
    "question first, topics": ("KV205", lambda i: body("You answer.", one(0, f"{pick(i, ['Why?', 'How is it done?', 'Where is it?'])} "
                                                                           f"({i})\n\n{prose(80, 500 + i % 4)}"))),
    "white space, doubled": ("KV310", lambda i: body(RULES.replace(" ", "  ") if i % 2 else RULES, one(i))),
    "white space, here and there": ("KV310", lambda i: body("".join(
        c + (" " if c == " " and random.Random(f"{i} {k}").random() < 0.05 else "") for k, c in enumerate(RULES)), talk(i))),
    "white space, front": ("KV310", lambda i: body("\n" * (i % 3) + RULES, one(i))),
    "ligature": ("KV311", lambda i: body(RULES.replace("fi", "\ufb01").replace("signs", "si\u200bgns") if i % 2 else RULES, one(i))),
    "prices": ("KV312", lambda i: body(f"Basic {NUMBERS[i % 3][0]}, pro {NUMBERS[i % 3][1]}.\n{RULES}", one(i))),
    "dates of places": ("KV312", lambda i: body(f"Start: {pick(i, ['09/11/2026', '11.09.2026', '2026-09-11'])}\n{RULES}", talk(i))),
    "examples": ("KV308", lambda i: body("Classify. Examples:\n" + "\n".join(
        f"Text: {a}\nLabel: {b}" for a, b in mixed(i, SHOTS)) + f"\n{RULES}", one(i))),
    "examples, messages": ("KV308", lambda i: body(RULES, [m for a, b in mixed(i, SHOTS) for m in (
        {"role": "user", "content": a}, {"role": "assistant", "content": b})] + one(i))),
    "examples, user": ("KV308", lambda i: body("Classify reviews.", one(0, "\n\n".join(
        f"Input: {a}\nOutput: {b}" for a, b in mixed(i, SHOTS)) + f"\n\nInput: {prose(20, i)}\nOutput:"))),
    "models": ("KV507", lambda i: {**body(RULES, talk(i)), "model": pick(ident(i, 8), ["a", "b", "c"])}),
    "picture": ("KV112", lambda i: body(RULES, picture(i))),
    "thoughts": ("KV406", lambda i: body(RULES, [
        {**m, "reasoning_content": f"Let me think about {k}, slowly."} if m["role"] == "assistant" and k >= 2 * i - 3 else m
        for k, m in enumerate(talk(i))])),
    "memories": ("KV203", lambda i: body(f"Known memories of the user:\n- {prose(20, i)}\n- {prose(20, i + 99)}\n\n{RULES}", one(i))),
    "context first": ("KV207", lambda i: body(f"Context:\n{prose(60, i)}\n\nRules:\n{RULES}", one(i))),
    "address": ("KV107", lambda i: body(f"Client: <Foo object at 0x7f{ident(i, 40):010x}>\n{RULES}", one(i))),
}  # fmt: skip

SILENT: dict[str, Make] = {
    "chat": lambda i: body(RULES, talk(i)),
    "single": lambda i: body(RULES, one(i), tools=TOOLS, temperature=i / 24),
    "agent": lambda i: body(RULES, agent(i), tools=TOOLS),
    "agent without system": lambda i: body(None, agent(i), tools=TOOLS),
    "clock at the end": lambda i: body(RULES, [*talk(i)[:-1], *one(0, f"{ask(i)}\n\nNow: {when(i, '%H:%M:%S')}")]),
    "documents of each turn": lambda i: body(RULES, [*talk(i)[:-1], *one(0, f"Context:\n{prose(90, i)}\n\n{ask(i)}")]),
    "one day": lambda i: body(f"Today is 2026-09-11.\n{RULES}", talk(i)),
    "branches": lambda i: body(RULES, [*talk(i // 2)[:-1], *one(i)]),
    "retries": lambda i: body(RULES, talk(i // 2)),
    "two sites": lambda i: body(RULES, one(i)) if i % 2 else body(prose(300, 5), one(0, f"Title: {ask(i)}")),
}  # fmt: skip


def rows(folder: Path, make: Make, *, named: bool) -> list[tuple[str, str | None, int, int]]:
    path = folder / "log.jsonl"
    lines = [make(i) for i in range(24)]
    if named:
        lines = [{**line, "metadata": {"session_id": "abc"}} for line in lines]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    found = analyse(lambda: read([path]), fixed=False).causes
    return [(c.reason, c.rule, c.count, c.tokens_lost) for c in found]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_named(case: str, named: bool, tmp_path: Path) -> None:
    rule, make = CASES[case]
    found = rows(tmp_path, make, named=named)
    assert [r[1] for r in found] == [rule], found


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("case", SILENT)
def test_silent(case: str, named: bool, tmp_path: Path) -> None:
    assert rows(tmp_path, SILENT[case], named=named) == []
