"""Documents that partly repeat: the session keeps their order, new ones are appended.

    python examples/documents.py

A retriever gives the same documents in another order for each question. Sent as given, everything
behind the first difference is computed again; laid out, only what is new is.
"""

from __future__ import annotations

from langchain_core.messages import HumanMessage, SystemMessage
from rich import print

from agentkv import CacheReport, ChatAgentKV, Document, static
from agentkv.layout import Level
from agentkv.report import table

TEXTS = {
    "opening": "The museum opens at ten and closes at six, on Thursdays at nine in the evening. ",
    "prices": "A ticket costs twelve euros, eight for students, nothing for children. ",
    "dogs": "Dogs wait outside, where there is water for them; guide dogs are welcome. ",
    "photos": "Photographs are allowed without flash, and never of other visitors. ",
}
FOUND = [
    ("When is it open?", ["opening", "prices", "dogs"]),
    ("What does it cost?", ["prices", "dogs", "opening"]),
    ("May my dog come?", ["dogs", "photos", "prices", "opening"]),
]


def main() -> None:
    documents = {name: Document(name, text * 4) for name, text in TEXTS.items()}
    rules = SystemMessage([static("Answer from the documents, in one sentence.")])
    levels: tuple[Level, ...] = ("off", "static_first")
    for layout in levels:
        reports = []
        # Their own salts keep the two runs apart: neither finds what the other computed.
        with ChatAgentKV(max_tokens=16, layout=layout, session="museum", cache_salt=layout) as llm:
            for question, names in FOUND:
                found = [documents[name] for name in names]
                answer = llm.invoke([rules, HumanMessage(question)], documents=found)
                reports.append(CacheReport.from_message(answer))
        print(table([r for r in reports if r is not None], title=f'layout="{layout}"'))


if __name__ == "__main__":
    main()
