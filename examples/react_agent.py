"""A LangGraph agent over local tools, and what each of its steps reused.

    pip install "agentkv[langchain]"
    python examples/react_agent.py [--quick]

The model decides which tool to call, the graph runs it, and the result goes back. Every step sends
the whole conversation again; a table says how much of it was computed again. The clock changes with
every step and would cost the whole prompt if it stood in front: it is declared with `volatile()`,
so it is laid behind everything else. `--naive` writes it into the system text, as is often done.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime

from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, ModelResponse, dynamic_prompt, wrap_model_call
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from rich import print

from agentkv import ChatAgentKV, cache_report, static, volatile

RULES = """You are the support agent of a parcel service. Use the tools to look things up, then
answer in one short sentence. Parcels are delivered from Monday to Saturday between 8 and 18 hours.
A parcel that nobody takes goes to the nearest shop and is kept there for seven days. Refunds take
three working days. Never promise a date. Never ask for a card number. Be kind to everybody."""

PARCELS = {
    "P-17": "left the depot in Bremen this morning",
    "P-18": "waits in the shop at Market Street 4 until Friday",
    "P-19": "was delivered yesterday at 16:40, signed by R. Olsen",
}
QUESTIONS = ["Where is parcel P-17?", "And P-18?", "What does it cost to send 3 kg to Norway?"]


@tool
def track(parcel: str) -> str:
    """Where a parcel is now, by its number, such as P-17."""
    return PARCELS.get(parcel, f"there is no parcel {parcel}")


@tool
def price(kilograms: float, country: str) -> str:
    """What it costs to send a parcel, by its weight in kilograms and the country."""
    return f"{4.9 + 1.2 * kilograms:.2f} euros to {country}"


def main(argv: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument("--naive", action="store_true", help="the clock at the system text's head")
    options.add_argument(
        "--quick", action="store_true", help="two questions, a tool each, short answers"
    )
    given = options.parse_args(argv)

    @dynamic_prompt
    def prompt(request: ModelRequest) -> SystemMessage:
        clock = f"The time is {datetime.now():%H:%M:%S.%f}.\n"
        if given.naive:
            return SystemMessage(clock + RULES)
        return SystemMessage([volatile(clock, "clock"), static(RULES)])

    most = 1 if given.quick else 2

    @wrap_model_call
    def answer_in_the_end(
        request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
    ) -> ModelResponse:
        """After some results the model has to answer. The tools stay in the prompt, so it costs
        no reuse: only what may be sampled is narrowed."""
        asked = max(i for i, m in enumerate(request.messages) if isinstance(m, HumanMessage))
        results = sum(isinstance(m, ToolMessage) for m in request.messages[asked:])
        return handler(request.override(tool_choice="none") if results >= most else request)

    with ChatAgentKV(model=given.model, max_tokens=48 if given.quick else 64) as llm:
        agent = create_agent(
            llm,
            [track, price],
            middleware=[prompt, answer_in_the_end],
            checkpointer=InMemorySaver(),
        )
        with cache_report() as report:
            for question in QUESTIONS[:2] if given.quick else QUESTIONS:
                state = agent.invoke(
                    {"messages": [HumanMessage(question)]},
                    {"configurable": {"thread_id": "parcels"}},
                )
                print(f"[bold]{question}[/bold]")
                messages = state["messages"]
                asked = max(i for i, m in enumerate(messages) if isinstance(m, HumanMessage))
                for message in messages[asked + 1 :]:
                    for call in getattr(message, "tool_calls", ()):
                        print(f"  -> {call['name']}({call['args']})")
                    if message.text.strip():
                        print(f"  {message.type}: {message.text.strip()}")
        print(report.table(title="each step of the agent"))


if __name__ == "__main__":
    main()
