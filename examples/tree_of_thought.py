"""Tree of thought by `batch`: each level grows the best branches, and every branch shares its trunk.

    python examples/tree_of_thought.py [--quick]

A level samples some continuations of each branch that is still alive, all in one `batch`, and keeps
those that the model itself finds likeliest (mean log-probability a token). The branches of one
parent share everything up to their own tokens, so a level computes a handful of tokens and not the
whole prompt again for each of its branches.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import ConfigurableField, RunnableConfig
from rich import print

from agentkv import ChatAgentKV, cache_report, static

RULES = """You solve puzzles step by step. Write exactly one short step at a time, in one sentence.
A step says what you do and what follows from it. Do not repeat a step that was already made. Do
not give the answer before the steps that lead to it."""

PUZZLE = """A farmer has to bring a fox, a goose and a bag of corn across a river. His boat carries
him and one more thing. Left alone, the fox eats the goose, and the goose eats the corn. How does
he get all three across?"""


@dataclass(frozen=True)
class Branch:
    """Steps so far, and the mean log-probability of the last one's tokens."""

    messages: tuple[BaseMessage, ...]
    score: float = 0.0

    @property
    def steps(self) -> list[str]:
        return [m.text.strip() for m in self.messages if isinstance(m, AIMessage)]


def score(answer: AIMessage) -> float:
    tokens = answer.response_metadata["logprobs"]["content"]
    return sum(token["logprob"] for token in tokens) / len(tokens)


def main(argv: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument("--depth", type=int, default=3, help="steps")
    options.add_argument("--width", type=int, default=4, help="continuations of a branch")
    options.add_argument("--keep", type=int, default=2, help="branches that live on")
    options.add_argument("--quick", action="store_true", help="depth 2, width 3, short steps")
    given = options.parse_args(argv)
    depth, width = (2, 3) if given.quick else (given.depth, given.width)

    branches = [Branch((SystemMessage([static(RULES)]), HumanMessage(PUZZLE)))]
    llm = ChatAgentKV(
        model=given.model, temperature=0.8, logprobs=1, max_tokens=12 if given.quick else 40
    )
    # The seed is set call by call, so that a run can be repeated exactly.
    seeded = llm.configurable_fields(seed=ConfigurableField(id="seed"))
    with llm:
        for level in range(depth):
            trunks = [branch for branch in branches for _ in range(width)]
            configs: list[RunnableConfig] = [
                {"configurable": {"seed": 100 * level + i}} for i in range(len(trunks))
            ]
            with cache_report() as report:
                answers = seeded.batch([list(b.messages) for b in trunks], config=configs)
            grown = [
                Branch((*trunk.messages, answer, HumanMessage("Next step?")), score(answer))
                for trunk, answer in zip(trunks, answers, strict=True)
            ]
            found = {branch.steps[-1]: branch for branch in sorted(grown, key=lambda b: b.score)}
            branches = sorted(found.values(), key=lambda b: -b.score)[: given.keep]
            print(report.table(title=f"level {level + 1}"))
            for branch in branches:
                print(f"  kept ({branch.score:.2f}): {branch.steps[-1]}")
    print("[bold]the likeliest branch[/bold]")
    for number, step in enumerate(branches[0].steps, 1):
        print(f"{number}. {step}")


if __name__ == "__main__":
    main()
