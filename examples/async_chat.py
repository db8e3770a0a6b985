"""Several conversations at once on one event loop, streamed; no web framework.

    python examples/async_chat.py [--quick]

Three visitors talk to the same assistant at the same time. Their streams are tasks of one loop and
one batch of the engine: the instructions are computed once for all of them, and every later turn
computes its own words only. Ctrl-C cancels the tasks, which aborts their calls in the engine.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence

from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from rich import print
from rich.box import SIMPLE
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agentkv import CacheReport, ChatAgentKV, static
from agentkv.report import table as tabulate

RULES = """You are the assistant of a small public library. Be friendly and brief: one sentence.
The library lends books for four weeks, and films and games for one week. A loan can be made longer
twice, unless somebody else waits for it. A card costs nothing for children and ten euros a year
for everybody else. Books that are out can be reserved; the reader gets a message when they are
back. Who brings something back late pays twenty cents a day and an item. The reading room is open
to everybody, with or without a card, and has eight computers that may be used for an hour a day.
On Wednesdays at four somebody reads stories to children between four and eight years."""

VISITORS = {
    "Ana": ["How long can I keep a book?", "And a film?", "What if I am late?"],
    "Bo": ["Do I need a card to read here?", "What does a card cost?", "Are there computers?"],
    "Cleo": ["Is there anything for my son? He is six.", "When is it?", "Thank you!"],
}


class Screen:
    """The conversations side by side, redrawn as their streams come in."""

    def __init__(self, names: Iterable[str]) -> None:
        self.texts = {name: Text() for name in names}

    def __rich__(self) -> Table:
        table = Table(*self.texts, box=SIMPLE, padding=(0, 2, 0, 0))
        table.add_row(*self.texts.values())
        return table

    def ask(self, name: str, question: str) -> None:
        self.texts[name].append(f"{question}\n", "bold")

    def put(self, name: str, piece: str) -> None:
        self.texts[name].append(piece)


async def talk(
    llm: ChatAgentKV, name: str, questions: Sequence[str], screen: Screen
) -> list[CacheReport]:
    """One conversation from first to last question."""
    history: list[BaseMessage] = [SystemMessage([static(RULES)])]
    reports = []
    for question in questions:
        history.append(HumanMessage(question))
        screen.ask(name, question)
        answer: AIMessageChunk | None = None
        async for chunk in llm.astream(history, session=name):
            screen.put(name, chunk.text)
            answer = chunk if answer is None else answer + chunk
        assert answer is not None
        screen.put(name, "\n\n")
        history.append(answer)
        report = CacheReport.from_message(answer)
        assert report is not None  # the last chunk of every stream has one
        reports.append(report)
    return reports


async def chat(model: str, turns: int, max_tokens: int) -> None:
    screen = Screen(VISITORS)
    async with ChatAgentKV(model=model, max_tokens=max_tokens) as llm:
        with Live(screen, auto_refresh=True):
            every = await asyncio.gather(
                *(talk(llm, name, asks[:turns], screen) for name, asks in VISITORS.items())
            )
    print()
    for name, reports in zip(VISITORS, every, strict=True):
        print(tabulate(reports, title=name))


def main(argv: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument("--quick", action="store_true", help="two turns, short answers")
    given = options.parse_args(argv)
    asyncio.run(chat(given.model, 2 if given.quick else 3, 8 if given.quick else 32))


if __name__ == "__main__":
    main()
