"""KV215 unknown-before-static."""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.price import Cost
from agentkv.lint.rules._hole import HoleRule, shown, what
from agentkv.lint.spot import Spot, spots
from agentkv.lint.template import Document


class UnknownBeforeStatic(HoleRule):
    """A value of unknown stability stands in front of static text.

    ## What it catches
    A variable of which neither the code nor its name says how often it changes, with `--min-tokens`
    or more static tokens behind it. One finding a prompt, and only where nothing that is known to
    change stands in front of it.

    ## Why it costs
    Perhaps nothing. If the value changes, everything behind it is computed again; if it is fixed for
    a deployment, all is well. The linter does not guess.

    ## Bad
    ```python
    prompt = f"{preface}\\n{RULES}"  # what is preface?
    ```

    ## Good
    ```toml
    [tool.agentkv.lint.stability]
    preface = "deploy"
    ```

    ## When it is wrong
    It is a question, not a verdict: answer it in the configuration, or in the file with
    `agentkv: stable=deploy`, and it is not asked again.
    """

    code = "KV215"
    name = "unknown-before-static"
    certainty = "heuristic"
    rank = 90
    inside = False

    def catches(self, spot: Spot, context: Context) -> bool:
        return (
            spot.level == "unknown"
            and not spot.placeholder
            and spot.behind >= context.min_tokens
            and not spot.hole.traits & {"conditional"}
        )

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        first: dict[int, tuple[int, int]] = {}
        for spot in spots(document, context):
            if spot.dynamic:
                first.setdefault(id(spot.template), spot.at)
        for finding in super().check(document, context):
            breaks = first.get(id(finding.template))
            if breaks is None or finding.at is None or finding.at < breaks:
                yield finding

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        return (
            f"{shown(spot)} (unknown stability) precedes {what(cost, context)}. If it changes from "
            f'call to call they are computed again; if not, say `{spot.hole.name} = "deploy"` under '
            "[tool.agentkv.lint.stability]."
        )
