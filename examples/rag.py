"""Retrieval: the documents found for one question partly come back for the next.

    python examples/rag.py [--quick]

A retriever ranks its documents anew for every question, so the same texts arrive in another order,
with others between them. Three ways to send the same documents:

- off             as they were found: whatever stands behind the first difference is computed again
- static_first    the session keeps the places of the documents it knows; new ones are appended
- static_first, kept   the conversation also keeps what it found before, so its documents only grow

Each way has a salt of its own: none of them finds what another one computed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.retrievers import BaseRetriever
from rich import print

from agentkv import CacheReport, ChatAgentKV, static
from agentkv.layout import Level
from agentkv.report import table

TEXTS = {
    "hours": "Opening hours. The museum opens at ten and closes at six. On Thursdays it is open "
    "until nine in the evening. It is closed on Mondays, except on public holidays. The last "
    "visitors are let in half an hour before closing time.",
    "tickets": "Tickets. A ticket costs twelve euros, and eight for students and pensioners. "
    "Children under twelve visit free. On Thursdays from six in the evening a ticket costs half. "
    "A ticket is good for the whole day, so that visitors may go out for lunch and come back.",
    "dogs": "Dogs. Dogs wait outside, where there is water for them in the shade. Guide dogs are "
    "welcome in all rooms. Visitors with a guide dog and one companion need no ticket.",
    "photos": "Photographs. Photographs may be taken without a flash, and never of other visitors. "
    "A tripod needs permission, which the office gives on the day of the visit. The new rooms on "
    "the second floor may not be photographed before the evening of their opening.",
    "groups": "Groups. A group of ten or more visitors pays eight euros a ticket and books a day "
    "before. A guide for a group costs sixty euros an hour. Schools pay nothing on Tuesdays.",
    "cafe": "Cafe. The cafe in the garden opens at eleven and closes at five. It has soup, bread "
    "and cake. Children get a small plate for four euros. Dogs are welcome in the garden.",
}
QUESTIONS = [
    "When does the museum open on Thursdays, and what does a ticket cost then?",
    "And what does it cost for children?",
    "When does the cafe in the garden close?",
    "What does a ticket cost for a group of students?",
    "May children take photographs?",
]
RULES = "You work at the desk of a museum. Answer from the documents, in one short sentence."
WORD = re.compile(r"[a-z]+")


class WordRetriever(BaseRetriever):
    """Ranks texts by the words that they share with the question; rare words count more."""

    texts: dict[str, str]
    k: int = 4

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        words = {name: set(WORD.findall(text.lower())) for name, text in self.texts.items()}
        asked = set(WORD.findall(query.lower()))

        def score(name: str) -> float:
            return sum(
                1 / sum(word in other for other in words.values()) for word in asked & words[name]
            )

        best = sorted(self.texts, key=lambda name: (-score(name), name))[: self.k]
        return [Document(id=name, page_content=self.texts[name]) for name in best]


def converse(llm: ChatAgentKV, questions: Sequence[str], *, keep: bool) -> list[CacheReport]:
    """One conversation; prints which documents each answer had, and what it was."""
    retriever = WordRetriever(texts=TEXTS)
    history: list[BaseMessage] = []
    known: dict[str | None, Document] = {}
    reports = []
    for question in questions:
        found = retriever.invoke(question)
        known = {**known, **{d.id: d for d in found}} if keep else {d.id: d for d in found}
        history.append(HumanMessage(question))
        answer = llm.invoke(
            [SystemMessage([static(RULES)]), *history], documents=list(known.values())
        )
        history.append(answer)
        report = CacheReport.from_message(answer)
        assert report is not None  # every answer of ChatAgentKV has one
        reports.append(report)
        print(f"[bold]{question}[/bold] [dim]({', '.join(d.id or '' for d in found)})[/dim]")
        print(f"  {answer.text.strip()}")
    return reports


def main(argv: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument("--quick", action="store_true", help="three questions, short answers")
    given = options.parse_args(argv)
    questions = QUESTIONS[:3] if given.quick else QUESTIONS
    ways: list[tuple[str, Level, bool]] = [
        ("off", "off", False),
        ("static_first", "static_first", False),
        ("static_first, kept", "static_first", True),
    ]
    for name, layout, keep in ways:
        with ChatAgentKV(
            model=given.model,
            layout=layout,
            max_tokens=8 if given.quick else 32,
            session=f"museum, {name}",
            cache_salt=name,
        ) as llm:
            print(table(converse(llm, questions, keep=keep), title=name))


if __name__ == "__main__":
    main()
