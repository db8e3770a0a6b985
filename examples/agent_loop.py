"""An agent's loop over one tool, and what each step of it reused.

    python examples/agent_loop.py

The clock changes with every call and would cost the whole prompt if it stood in front; it is
declared with `volatile()`, so it is laid behind everything else. This script decides when the tool
is called; the model writes the answers.
"""

from __future__ import annotations

from datetime import datetime

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from rich import print

from agentkv import CacheReport, ChatAgentKV, static, volatile
from agentkv.report import table

RULES = """You are the support agent of a parcel service. Answer in one short sentence.
Parcels are delivered from Monday to Saturday between 8 and 18 hours. A parcel that nobody takes
goes to the nearest shop and is kept there for seven days. Refunds take three working days.
Never promise a date. Never ask for a card number. Be kind to everybody."""


@tool
def track(parcel: str) -> str:
    """Where a parcel is now, by its number."""
    return f"{parcel}: left the depot in Bremen this morning"


def main() -> None:
    history: list[BaseMessage] = []
    reports: list[CacheReport] = []
    with ChatAgentKV(max_tokens=24) as llm:
        agent = llm.bind_tools([track])

        def ask() -> str:
            clock = volatile(f"The time is {datetime.now():%H:%M:%S.%f}.", name="clock")
            answer = agent.invoke([SystemMessage([clock, static(RULES)]), *history])
            report = CacheReport.from_message(answer)
            if report is not None:
                reports.append(report)
            return answer.text

        for number in ("P-17", "P-18", "P-19"):
            history.append(HumanMessage(f"Where is parcel {number}?"))
            arguments, name = {"parcel": number}, f"call-{number}"
            history.append(
                AIMessage("", tool_calls=[{"name": "track", "args": arguments, "id": name}])
            )
            history.append(ToolMessage(track.invoke(arguments), tool_call_id=name))
            said = ask()
            history.append(AIMessage(said))
            print(f"[bold]{number}[/bold] {said}")
    print(table(reports, title="one conversation"))


if __name__ == "__main__":
    main()
