"""Logs with one planted cause each, and healthy ones: 24 requests, in several shapes and formats.

`log(kind, ...)` gives the lines of one log as JSON values. Nothing in here knows how causes are
found; wording, places of the values, number of sessions and format all come from the arguments.
"""

from __future__ import annotations

import base64
import copy
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

REQUESTS = 24
START = datetime(2026, 3, 2, 9, 0, 0, tzinfo=UTC)

DOMAINS: dict[str, tuple[str, list[str]]] = {
    "airline": (
        "You are the support agent of a small airline.",
        [
            "Before changing a booking, repeat the details and obtain an explicit yes.",
            "A reservation holds one to five travellers, and all of them fly in the same cabin.",
            "Basic economy tickets cannot be changed, whatever the traveller's reason is.",
            "Baggage is free for gold cards up to three pieces of twenty-three kilograms each.",
            "Refunds go to the original means of payment within seven working days.",
            "Compensation is offered only when a traveller complains about a delayed flight.",
            "Never promise an upgrade; upgrades are granted at the gate by the crew alone.",
            "If a tool fails twice, say so plainly and hand over to a human colleague.",
            "Do not give legal advice, and do not speculate about causes of delays.",
            "Write in short paragraphs, without emoji, and always end with an open question.",
        ],
    ),
    "coder": (
        "You are a careful programmer who works in a large repository.",
        [
            "Read a file before you edit it, and keep the style that you find there.",
            "Prefer small patches; explain in one sentence why each of them is needed.",
            "Run the tests that cover the changed code, and quote the failing lines exactly.",
            "Never delete data, never force push, and never print secrets of any kind.",
            "When requirements contradict each other, stop and ask which one matters more.",
            "Public functions have a docstring with units, shapes and raised errors.",
            "Do not add a dependency when ten lines of plain code do the same work.",
            "Use absolute paths in commands, and quote every path that holds blanks.",
            "Leave generated files alone; change the generator and run it instead.",
            "Answer with the final state of the work, not with a plan of it.",
        ],
    ),
    "kitchen": (
        "Du bist die Küchenhilfe einer Kantine. You speak German and English.",
        [
            "Suggest dishes from what is in the store room, and name what is missing.",
            "Allergens are listed after each dish, in brackets, in alphabetical order.",
            "Portions are planned for one hundred and twenty guests unless told otherwise.",
            "A vegetarian dish is on the plan every day, and fish is there on two days.",
            "Zutaten werden in Gramm angegeben, Flüssigkeiten in Millilitern.",
            "Never suggest raw eggs, raw minced meat or unpasteurised milk for the canteen.",
            "Left-overs of the day before are used first, as long as they are safe.",
            "Keep the cost of a plate under four euros and say what it comes to.",
            "When an oven is out of order, plan dishes that only need the stove.",
            "Close with the shopping list, grouped by supplier and by day.",
        ],
    ),
}
ASKS = [
    "Can I move my trip to the following week?",
    "Which of the two options would you take?",
    "Please explain the second point again.",
    "How long does all of this usually take?",
    "What happens when I am late for it?",
    "Give me the short version, please.",
    "Is there anything that I have forgotten?",
    "Why is the price higher than last year?",
    "Tell me more about the first one.",
    "Who has to sign the papers in the end?",
    "Could you check the numbers once more?",
    "Where do I find the form for this?",
    "What would change if we waited until autumn?",
    "Does the same hold for children under twelve?",
    "List the three most important risks.",
    "And what about the weekend?",
    "How do the costs split between both teams?",
    "Should we tell the others about it already?",
    "Which parts can be done in parallel?",
    "What did we decide about the second site?",
    "Can this be undone later on?",
    "Is the old contract still in force?",
    "Where did that figure come from?",
    "When will the next review take place?",
]
REPLIES = [
    "Yes, that is possible, but the difference in price has to be paid at once.",
    "I would take the first one, because it keeps more doors open for later.",
    "Of course: the point is that both conditions must hold on the same day.",
    "Usually between two and four weeks, depending on how busy the office is.",
    "Nothing dramatic happens; you are simply put on the list for the next round.",
    "In short: file it now, wait for the letter, then pay within thirty days.",
    "Only the signature on the last page; everything else is already in order.",
    "Because fuel and wages went up, and the discount of the last year has ended.",
]
NAMES = [
    ("Alice Meyer", "alice.meyer@example.org"), ("Bob Tanaka", "bob@tanaka.example"),
    ("Chidi Okafor", "chidi.o@example.com"), ("Dora Lindqvist", "dora@lindqvist.example"),
    ("Elif Yilmaz", "elif.y@example.net"), ("Farid Haddad", "farid@haddad.example"),
    ("Grace Liu", "grace.liu@example.org"), ("Henrik Olsen", "h.olsen@example.no"),
]  # fmt: skip
DOCUMENTS = [
    ("handbook.md", "The handbook says that every order above one thousand euros needs two signatures, "
     "one of them from the treasurer. Orders below that limit are approved by the team itself."),
    ("travel.md", "Journeys are booked at least ten days ahead. Trains are preferred for anything "
     "under six hours, and receipts have to be handed in within one month of the return."),
    ("safety.md", "The laboratory may only be used after a briefing that is repeated every year. "
     "Nobody works there alone after seven in the evening, whatever the deadline says."),
    ("leave.md", "Staff have thirty days of leave. Five of them may be carried over to the spring "
     "of the following year; after the end of March they are lost without compensation."),
    ("archive.md", "Contracts are kept for ten years after their end, applications for six months. "
     "Personal files are destroyed by the archive itself, never by the departments."),
]  # fmt: skip
SHOTS = [
    ("The parcel came two days late and was wet.", "negative"),
    ("Lovely staff, quick answer, thank you!", "positive"),
    ("It works, I suppose, as the last one did.", "neutral"),
    ("I was charged twice and nobody called back.", "negative"),
    ("Best breakfast that I had in this town.", "positive"),
]


def _tool(name: str, about: str, **properties: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": about,
        "parameters": {
            "type": "object",
            "properties": {k: {"type": "string", "description": v} for k, v in properties.items()},
            "required": list(properties),
        },
    }


TOOLS = [
    _tool("search_flights", "Find flights between two airports on one day.",
          origin="IATA code", destination="IATA code", day="ISO day of departure"),
    _tool("get_booking", "Read a booking with its travellers and payments.", booking="number"),
    _tool("change_booking", "Change one leg of a booking after the traveller agreed.",
          booking="number", leg="number of the leg", to="new flight"),
    _tool("refund", "Pay back an amount to the original means of payment.",
          booking="number", amount="in euros, with two decimals"),
    _tool("handover", "Hand the conversation over to a human colleague.", why="one sentence"),
    _tool("weather", "Forecast for an airport over the next three days.", airport="IATA code"),
]  # fmt: skip


@dataclass
class Request:
    """One call, in no format. `system`: a text, or blocks. `messages`: role and text (or blocks)."""

    system: str | list[str] | None
    messages: list[dict[str, Any]]
    model: str = "gpt-4o"
    tools: list[dict[str, Any]] = field(default_factory=list)
    session: str | None = None
    time: datetime = START
    user: str | None = None


@dataclass(frozen=True)
class Shape:
    """How a log looks, apart from its cause."""

    seed: int = 0
    sessions: int = 1
    named: bool = True
    domain: str = "airline"
    place: str = "head"
    """Of a value: head, middle, tail (of the system message), user (first user message), block."""
    style: int = 0
    interleaved: bool = False


def rules(shape: Shape) -> tuple[str, list[str]]:
    first, lines = DOMAINS[shape.domain]
    return first, [f"{i}. {line}" for i, line in enumerate(lines, 1)]


def system(shape: Shape, value: str | None = None) -> str:
    """The instructions, with a line that holds `value` at its place."""
    first, lines = rules(shape)
    lines = list(lines)
    if value is not None and shape.place in ("head", "block"):
        return "\n".join([value, first, *lines])
    if value is not None and shape.place == "middle":
        lines.insert(4, value)
    if value is not None and shape.place == "tail":
        lines.append(value)
    return "\n".join([first, *lines])


def say(role: str, text: Any) -> dict[str, Any]:
    return {"role": role, "content": text}


Turn = Callable[[int, int, int], Request]
"""Session, turn of it, number in the log -> the request."""


def spread(shape: Shape, make: Turn) -> list[Request]:
    """24 requests over the sessions of a shape, one behind the other or interleaved."""
    turns = REQUESTS // shape.sessions
    order = [(s, t) for s in range(shape.sessions) for t in range(turns)]
    if shape.interleaved:
        order.sort(key=lambda st: (st[1], st[0]))
    out: list[Request] = []
    for n, (s, t) in enumerate(order):
        request = make(s, t, n)
        request.session = f"s-{shape.seed}-{s}" if shape.named else None
        request.time = START + timedelta(seconds=n * (37 + shape.seed % 50))
        out.append(request)
    return out


def talk(shape: Shape, s: int, t: int, first: str = "") -> list[dict[str, Any]]:
    """The messages of turn `t` of a session: it has asked `t + 1` times."""
    out: list[dict[str, Any]] = []
    for i in range(t + 1):
        ask = (
            f"{ASKS[(s * 7 + i) % len(ASKS)]} (case {s + 1})" if i == 0 else ASKS[(s * 7 + i) % 24]
        )
        out.append(say("user", (first if i == 0 else "") + ask))
        if i < t:
            out.append(say("assistant", REPLIES[(s * 5 + i) % len(REPLIES)] + f" ({s}.{i})"))
    return out


def valued(shape: Shape, value: Callable[[int, int, int], str]) -> list[Request]:
    """A line with a value, at the shape's place."""

    def make(s: int, t: int, n: int) -> Request:
        line = value(s, t, n)
        if shape.place == "user":
            first, lines = rules(shape)
            head = "\n".join([line, "Keep to these rules:", *lines, "", "My question: "])
            return Request(first, talk(shape, s, t, head))
        if shape.place == "block":
            return Request([line, system(shape)], talk(shape, s, t))
        return Request(system(shape, line), talk(shape, s, t))

    return spread(shape, make)


# -- the sixteen -----------------------------------------------------------------------------------


def clock(shape: Shape) -> list[Request]:
    formats = [
        lambda d: f"Current time: {d.isoformat()}",
        lambda d: f"It is {d.strftime('%A, %B %d, %Y at %I:%M:%S %p')}.",
        lambda d: f"<now>{d.strftime('%Y-%m-%d %H:%M:%S')}</now>",
        lambda d: f"Timestamp {int(d.timestamp())}",
        lambda d: f"Uhrzeit: {d.strftime('%d.%m.%Y %H:%M:%S')} Uhr",
        lambda d: f"now={d.strftime('%Y-%m-%dT%H:%M:%S.%fZ')} tz=UTC",
    ]
    return valued(
        shape, lambda s, t, n: formats[shape.style % 6](START + timedelta(seconds=71 * n + 3))
    )


def uuids(shape: Shape) -> list[Request]:
    rng = random.Random(shape.seed)
    formats = [
        lambda: f"Request id: {uuid.UUID(int=rng.getrandbits(128), version=4)}",
        lambda: f"[trace {rng.getrandbits(64):016x}]",
        lambda: f"run_id=run_{''.join(rng.choices('abcdefghjkmnpqrstuvwxyz0123456789', k=14))}",
        lambda: f'<request uuid="{uuid.UUID(int=rng.getrandbits(128), version=4)}"/>',
    ]
    return valued(shape, lambda s, t, n: formats[shape.style % 4]())


def name(shape: Shape) -> list[Request]:
    formats = [
        lambda n, e: f"You are talking to {n}.",
        lambda n, e: f"Customer: {n} <{e}>",
        lambda n, e: f"The user's name is {n} and their e-mail is {e}. Greet them by name.",
        lambda n, e: f"Account of {n}",
    ]

    def make(s: int, t: int, n: int) -> str:
        who = NAMES[(s if shape.sessions > 1 else n) % len(NAMES)]
        return formats[shape.style % 4](*who)

    return valued(shape, make)


def tool_order(shape: Shape) -> list[Request]:
    rng = random.Random(shape.seed)

    def make(s: int, t: int, n: int) -> Request:
        tools = rng.sample(TOOLS, len(TOOLS))
        return Request(system(shape), talk(shape, s, t), tools=tools)

    return spread(shape, make)


def tool_set(shape: Shape) -> list[Request]:
    rng = random.Random(shape.seed)

    def make(s: int, t: int, n: int) -> Request:
        drop = rng.randrange(len(TOOLS))
        kept = [x for i, x in enumerate(TOOLS) if i != drop]
        if shape.style % 2:
            kept = [x for x in TOOLS if rng.random() < 0.7] or TOOLS[:2]
        return Request(system(shape), talk(shape, s, t), tools=kept)

    return spread(shape, make)


def tool_key_order(shape: Shape) -> list[Request]:
    rng = random.Random(shape.seed)

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            keys = list(value)
            rng.shuffle(keys)
            return {k: shuffled(value[k]) for k in keys}
        return [shuffled(v) for v in value] if isinstance(value, list) else value

    def make(s: int, t: int, n: int) -> Request:
        tools = [{**x, "parameters": shuffled(x["parameters"])} for x in TOOLS]
        return Request(system(shape), talk(shape, s, t), tools=tools)

    return spread(shape, make)


def sliding_window(shape: Shape) -> list[Request]:
    window = (5, 7, 4, 3)[shape.style % 4]

    def make(s: int, t: int, n: int) -> Request:
        return Request(system(shape), talk(shape, s, t)[-window:])

    return spread(shape, make)


def edited_history(shape: Shape) -> list[Request]:
    """What was said earlier is rewritten each time, in one of four ways."""

    def make(s: int, t: int, n: int) -> Request:
        messages = talk(shape, s, t)
        style = shape.style % 4
        for i, message in enumerate(messages[:-1]):
            age = len(messages) - i
            if style == 0 and message["role"] == "assistant" and age > 3:
                message["content"] = "[cleared]"
            elif style == 1 and message["role"] == "assistant" and age > 2:
                message["content"] = message["content"][: 30 + 3 * i] + " ..."
            elif style == 2 and i == len(messages) - 4:
                message["content"] += " (the customer has seen this)"
            elif style == 3 and message["role"] == "assistant":
                message["content"] += f" [rated {1 + (s + t + i) % 5}/5]"
        return Request(system(shape), messages)

    return spread(shape, make)


def _papers(shape: Shape, order: list[int]) -> str:
    forms = [
        lambda i, n, t: f"[{i}] {t}",
        lambda i, n, t: f'<document index="{i}" source="{n}">\n{t}\n</document>',
        lambda i, n, t: f"Document {i} ({n}):\n{t}\n",
        lambda i, n, t: f"Source: {n}\n{t}\n",
    ]
    return "\n".join(forms[shape.style % 4](i, *DOCUMENTS[d]) for i, d in enumerate(order, 1))


def document_order(shape: Shape) -> list[Request]:
    rng = random.Random(shape.seed)

    def make(s: int, t: int, n: int) -> Request:
        papers = _papers(shape, rng.sample(range(5), 5))
        if shape.place == "user":
            text = f"Documents:\n{papers}\n\nQuestion: {ASKS[n]}"
            return Request(system(shape), [say("user", text)])
        return Request(f"{system(shape)}\n\nContext:\n{papers}", talk(shape, s, t))

    return spread(shape, make)


def question_first(shape: Shape) -> list[Request]:
    papers = _papers(shape, [0, 1, 2, 3, 4])

    def make(s: int, t: int, n: int) -> Request:
        ask = ASKS[n]
        if shape.place == "block":
            return Request(system(shape), [say("user", [f"Question: {ask}", papers])])
        if shape.place == "middle":
            return Request(system(shape), [say("user", ask), say("user", papers)])
        label = ("Question: ", "", "User query: ")[shape.style % 3]
        return Request(system(shape), [say("user", f"{label}{ask}\n\nContext:\n{papers}")])

    return spread(shape, make)


def whitespace(shape: Shape) -> list[Request]:
    ways: list[list[Callable[[str], str]]] = [
        [lambda x: x, lambda x: x.replace("\n", "\r\n")],
        [lambda x: x, lambda x: x.replace("\n", " \n"), lambda x: x.replace("\n", "\n\n")],
        [lambda x: x, lambda x: "\n".join("  " + line for line in x.split("\n"))],
        [lambda x: x, lambda x: x + "\n", lambda x: "\n" + x],
    ]

    def make(s: int, t: int, n: int) -> Request:
        forms = ways[shape.style % 4]
        pick = forms[(s if shape.sessions > 1 and shape.style % 2 else n) % len(forms)]
        return Request(pick(system(shape)), talk(shape, s, t))

    return spread(shape, make)


def locale(shape: Shape) -> list[Request]:
    ways = [
        ("Budget of this month: 12,345.60 EUR", "Budget of this month: 12.345,60 EUR"),
        ("Price list of 03/02/2026 with 1,250.00 per seat",
         "Price list of 02.03.2026 with 1.250,00 per seat", "Price list of 2026-03-02 with 1 250.00 per seat"),
        ("Valid since Monday, March 2, 2026", "Valid since Montag, 2. März 2026"),
        ("Rate: 0.75 and limit 2,000", "Rate: 0,75 and limit 2.000"),
    ]  # fmt: skip
    return valued(shape, lambda s, t, n: ways[shape.style % 4][n % len(ways[shape.style % 4])])


def fewshot(shape: Shape) -> list[Request]:
    rng = random.Random(shape.seed)

    def make(s: int, t: int, n: int) -> Request:
        shots = rng.sample(SHOTS, len(SHOTS))
        if shape.place in ("user", "block"):
            turns = [m for q, a in shots for m in (say("user", q), say("assistant", a))]
            return Request(system(shape), [*turns, *talk(shape, s, t)])
        forms = [
            lambda q, a: f"Input: {q}\nOutput: {a}\n",
            lambda q, a: f"Q: {q}\nA: {a}\n",
            lambda q, a: f"<example>\n{q} -> {a}\n</example>",
        ]
        text = "\n".join(forms[shape.style % 3](q, a) for q, a in shots)
        first, lines = rules(shape)
        return Request("\n".join([first, "Examples:", text, *lines]), talk(shape, s, t))

    return spread(shape, make)


def model_switch(shape: Shape) -> list[Request]:
    models = [
        ("gpt-4o", "gpt-4o-mini"),
        ("claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-1"),
    ]
    pick = models[shape.style % 2]

    def make(s: int, t: int, n: int) -> Request:
        return Request(system(shape), talk(shape, s, t), model=pick[n % len(pick)])

    return spread(shape, make)


def image(shape: Shape) -> list[Request]:
    """One picture, other bytes (or another signature) in each call."""
    rng = random.Random(shape.seed)

    def make(s: int, t: int, n: int) -> Request:
        if shape.style % 2:
            url = f"https://img.example/plan-{s}.png?sig={rng.getrandbits(64):x}&exp={n}"
        else:
            data = b"\x89PNG\r\n\x1a\n" + rng.randbytes(600)
            url = "data:image/png;base64," + base64.b64encode(data).decode()
        messages = talk(shape, s, t)
        text = messages[0]["content"]
        messages[0] = say("user", [{"image": url}, "This is the floor plan. " + text])
        return Request(system(shape), messages)

    return spread(shape, make)


def reasoning(shape: Shape) -> list[Request]:
    """Thoughts are sent back with the last answer, and left out of the ones before it."""

    def make(s: int, t: int, n: int) -> Request:
        messages = talk(shape, s, t)
        last = max((i for i, m in enumerate(messages) if m["role"] == "assistant"), default=None)
        if last is not None:
            thought = f"The user wants to know about point {t}. I compare it with rule {s + 3}."
            if shape.style % 2:
                messages[last]["reasoning"] = thought
            else:
                messages[last]["content"] = (
                    f"<think>{thought}</think>\n" + messages[last]["content"]
                )
        return Request(system(shape), messages)

    return spread(shape, make)


# -- healthy ---------------------------------------------------------------------------------------


def healthy_agent(shape: Shape) -> list[Request]:
    def make(s: int, t: int, n: int) -> Request:
        messages: list[dict[str, Any]] = [say("user", f"{ASKS[s % 24]} My booking is {4711 + s}.")]
        for i in range(t):
            tool = TOOLS[i % len(TOOLS)]["name"]
            messages.append(
                {
                    "role": "assistant",
                    "content": "",
                    "call": (f"call_{s}_{i}", tool, f'{{"booking": "{4711 + s}", "step": {i}}}'),
                }
            )
            messages.append(
                {
                    "role": "tool",
                    "call_id": f"call_{s}_{i}",
                    "content": f'{{"state": "ok", "time": "2026-03-02T09:{i:02d}:00Z", "n": {i * 7}}}',
                }
            )
        return Request(system(shape), messages, tools=TOOLS)

    return spread(shape, make)  # fmt: skip


def healthy_chat(shape: Shape) -> list[Request]:
    """A chat whose last message carries a clock that is left out again afterwards (or kept)."""

    def make(s: int, t: int, n: int) -> Request:
        messages = talk(shape, s, t)
        if shape.style % 2:
            messages[-1]["content"] += f"\n\n[now: 2026-03-02T10:{n:02d}:{(n * 7) % 60:02d}Z]"
        return Request(system(shape), messages)

    return spread(shape, make)


def healthy_single(shape: Shape) -> list[Request]:
    def make(s: int, t: int, n: int) -> Request:
        text = f"Time: 10:{n:02d}. Request {uuid.UUID(int=n * 7919 + 5)}. {ASKS[n]}"
        return Request(system(shape), [say("user", text if shape.style % 2 else ASKS[n])])

    return spread(shape, make)


def healthy_rag(shape: Shape) -> list[Request]:
    rng = random.Random(shape.seed)

    def make(s: int, t: int, n: int) -> Request:
        facts = [
            f"The office in town {n * 3 + i} has {rng.randrange(5, 90)} rooms, opens at "
            f"{rng.randrange(6, 11)} and is led by {rng.choice(NAMES)[0]} since {1990 + n}."
            for i in range(3)
        ]
        papers = "\n".join(f"[{i}] {f}" for i, f in enumerate(facts, 1))
        text = f"Documents:\n{papers}\n\nQuestion: {ASKS[n]}"
        return Request(system(shape), [say("user", text)])

    return spread(shape, make)


PLANTED: dict[str, Callable[[Shape], list[Request]]] = {
    "clock": clock, "uuid": uuids, "name": name, "tool_order": tool_order, "tool_set": tool_set,
    "tool_key_order": tool_key_order, "sliding_window": sliding_window,
    "edited_history": edited_history, "document_order": document_order,
    "question_first": question_first, "whitespace": whitespace, "locale": locale,
    "fewshot": fewshot, "model_switch": model_switch, "image": image, "reasoning": reasoning,
}  # fmt: skip
HEALTHY: dict[str, Callable[[Shape], list[Request]]] = {
    "agent": healthy_agent, "chat": healthy_chat, "single": healthy_single, "rag": healthy_rag,
}  # fmt: skip
EXPECTED: dict[str, tuple[set[str], set[str]]] = {
    "clock": ({"text_changed"}, {"KV101"}),
    "uuid": ({"text_changed"}, {"KV103"}),
    "name": ({"text_changed"}, {"KV202"}),
    "tool_order": ({"tool_order"}, {"KV501"}),
    "tool_set": ({"tool_changed"}, {"KV502"}),
    "tool_key_order": ({"tool_changed"}, {"KV504"}),
    "sliding_window": ({"history_truncated"}, {"KV401"}),
    "edited_history": ({"history_edited"}, {"KV402"}),
    "document_order": ({"document_order"}, {"KV306"}),
    "question_first": ({"text_changed"}, {"KV205"}),
    "whitespace": ({"text_changed"}, {"KV310"}),
    "locale": ({"text_changed"}, {"KV312"}),
    "fewshot": ({"text_changed"}, {"KV308"}),
    "model_switch": ({"model_changed"}, {"KV507"}),
    "image": ({"text_changed"}, {"KV112"}),
    "reasoning": ({"reasoning_stripped"}, {"KV406"}),
}


# -- formats ---------------------------------------------------------------------------------------


def _openai_messages(request: Request) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    if request.system is not None:
        content: Any = request.system
        if isinstance(content, list):
            content = [{"type": "text", "text": x} for x in content]
        out.append({"role": "system", "content": content})
    for message in copy.deepcopy(request.messages):
        content = message["content"]
        if isinstance(content, list):
            content = [
                {"type": "text", "text": x} if isinstance(x, str)
                else {"type": "image_url", "image_url": {"url": x["image"]}}
                for x in content
            ]  # fmt: skip
        line: dict[str, Any] = {"role": message["role"], "content": content}
        if "call" in message:
            ident, tool, arguments = message["call"]
            line["content"] = None
            line["tool_calls"] = [
                {
                    "id": ident,
                    "type": "function",
                    "function": {"name": tool, "arguments": arguments},
                }
            ]
        if "call_id" in message:
            line["tool_call_id"] = message["call_id"]
        if "reasoning" in message:
            line["reasoning_content"] = message["reasoning"]
        out.append(line)
    return out


def openai(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {"model": request.model, "messages": _openai_messages(request)}
    if request.tools:
        body["tools"] = [{"type": "function", "function": t} for t in request.tools]
    return body


def _stamp(request: Request, line: dict[str, Any]) -> dict[str, Any]:
    if request.session is not None:
        line["session_id"] = request.session
    return {"timestamp": request.time.isoformat(), **line}


def openai_log(request: Request) -> dict[str, Any]:
    return _stamp(request, {"request": openai(request)})


def openai_bare(request: Request) -> dict[str, Any]:
    body = openai(request)
    if request.session is not None:
        body["metadata"] = {"session_id": request.session}
    return body


def batch(request: Request) -> dict[str, Any]:
    body = openai_bare(request)
    return {"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": body}


def anthropic(request: Request) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for message in request.messages:
        content = message["content"]
        blocks: list[dict[str, Any]] = []
        for x in content if isinstance(content, list) else [content]:
            if isinstance(x, str):
                if x:
                    blocks.append({"type": "text", "text": x})
            elif x["image"].startswith("data:"):
                kind, data = x["image"][5:].split(";base64,")
                source = {"type": "base64", "media_type": kind, "data": data}
                blocks.append({"type": "image", "source": source})
            else:
                blocks.append({"type": "image", "source": {"type": "url", "url": x["image"]}})
        if "reasoning" in message:
            thought = {"type": "thinking", "thinking": message["reasoning"], "signature": "c2ln"}
            blocks.insert(0, thought)
        role = message["role"]
        if "call" in message:
            import json

            ident, tool, arguments = message["call"]
            blocks.append(
                {"type": "tool_use", "id": ident, "name": tool, "input": json.loads(arguments)}
            )
        if "call_id" in message:
            role = "user"
            blocks = [
                {"type": "tool_result", "tool_use_id": message["call_id"], "content": content}
            ]
        messages.append({"role": role, "content": blocks if len(blocks) != 1 or
                         blocks[0]["type"] != "text" else blocks[0]["text"]})  # fmt: skip
    model = request.model if request.model.startswith("claude") else f"claude-{request.model}"
    body: dict[str, Any] = {"model": model, "max_tokens": 1024, "messages": messages}
    if request.system is not None:
        body["system"] = (
            request.system
            if isinstance(request.system, str)
            else [{"type": "text", "text": x} for x in request.system]
        )
    if request.tools:
        body["tools"] = [
            {"name": t["name"], "description": t["description"], "input_schema": t["parameters"]}
            for t in request.tools
        ]
    return _stamp(request, {"request": body, "url": "https://api.anthropic.com/v1/messages"})


def litellm(request: Request) -> dict[str, Any]:
    line: dict[str, Any] = {
        "call_type": "acompletion", "litellm_call_id": str(uuid.uuid4()), "model": request.model,
        "messages": _openai_messages(request), "startTime": request.time.timestamp(),
        "metadata": {}, "model_parameters": {},
    }  # fmt: skip
    if request.tools:
        tools = [{"type": "function", "function": t} for t in request.tools]
        line["model_parameters"] = {"tools": tools}
    if request.session is not None:
        line["litellm_session_id"] = request.session
    return line


FORMATS: dict[str, Callable[[Request], dict[str, Any]]] = {
    "openai": openai_log, "bare": openai_bare, "batch": batch, "anthropic": anthropic,
}  # fmt: skip


def log(kind: str, shape: Shape, form: str = "openai") -> list[dict[str, Any]]:
    """The lines of one log."""
    make = PLANTED.get(kind) or HEALTHY[kind]
    return [FORMATS[form](r) for r in make(shape)]
