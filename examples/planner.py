"""A planner and five workers that share one long brief.

    python examples/planner.py [--quick]

The planner reads the brief and makes five tasks. Five workers then run at once, in one `batch`:
each gets the same brief and the same plan, and a task of its own at the end. The first one in
computes what they share; the others wait for those pages, and compute only their own task.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from rich import print

from agentkv import ChatAgentKV, Document, cache_report, static

RULES = """You are one of a team that prepares a street festival. Use the brief. Be concrete and
brief: one or two sentences."""

BRIEF = """The festival takes place on Saturday the 14th of June in Mill Street, from noon until ten
in the evening. Mill Street is 400 metres long and closed to cars from eight in the morning. The
town gives 6,000 euros and lends 40 tables, 120 benches and two water taps. Electricity comes from
the school at the north end, 16 kilowatts at most. About 900 visitors are expected, a third of them
children. Eleven neighbours help: four of them can cook, two are electricians, one is a nurse and
one plays in a brass band. Loud music must end at nine. The fire brigade needs a lane of three
metres and looks at everything at ten in the morning. In case of rain the school's hall may be
used, which holds 350 people. Waste is collected on Sunday at seven; bins are ordered a week ahead.
Food may be sold only by those who have a certificate, which the four cooks have. Glass is not
allowed in the street. Last year 120 visitors complained that there was no shade and too few
toilets; there were three toilets, at the south end. This year the school opens its six toilets."""

TASKS = [
    "where the tables, the kitchen and the fire lane go",
    "what is cooked, by whom, and how much of it",
    "how the electricity is shared out",
    "what happens for the children",
    "what is done if it rains",
]


def main(argv: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument("--quick", action="store_true", help="short answers")
    given = options.parse_args(argv)
    system = SystemMessage([static(RULES)])
    with ChatAgentKV(
        model=given.model,
        documents=[Document("brief", BRIEF)],
        max_tokens=12 if given.quick else 48,
    ) as llm:
        aims = "".join(f"\n{i}. {task}" for i, task in enumerate(TASKS, 1))
        ask = HumanMessage(f"Our five tasks are:{aims}\nWhich of them is the hardest, and why?")
        with cache_report() as planning:
            plan = llm.invoke([system, ask], session="planner")
        print(f"[bold]plan[/bold] {plan.text.strip()}")

        # A thread of its own for each worker: reports compare a call with its own thread only.
        threads: list[RunnableConfig] = [
            {"metadata": {"thread_id": f"worker-{i}"}} for i in range(len(TASKS))
        ]
        with cache_report() as working:
            workers = llm.batch(
                [[system, ask, plan, HumanMessage(f"You do this one: {task}.")] for task in TASKS],
                config=threads,
            )
        for task, answer in zip(TASKS, workers, strict=True):
            print(f"[bold]{task}[/bold] {answer.text.strip()}")

        notes = "\n".join(f"- {answer.text.strip()}" for answer in workers)
        with cache_report() as summing:
            summary = llm.invoke(
                [system, ask, plan, HumanMessage(f"The team's notes:\n{notes}\nSum them up.")],
                session="planner",
            )
        print(f"[bold]summary[/bold] {summary.text.strip()}")
        print(planning.table(title="the planner: it computes the brief"))
        print(working.table(title="five workers at once"))
        print(summing.table(title="the summary"))


if __name__ == "__main__":
    main()
