"""KV106 host-state-in-prefix."""

from __future__ import annotations

import re
from dataclasses import replace

from agentkv.lint.context import Context
from agentkv.lint.price import Cost
from agentkv.lint.rules._hole import HoleRule
from agentkv.lint.spot import Spot

_HOST = re.compile(r"host_?name|getfqdn|\bnode\b|\buname\b", re.IGNORECASE)
"""What all machines of a deployment may share, as far as one can see here."""


class HostStateInPrefix(HoleRule):
    """The state of a machine or a checkout stands in front of static text.

    ## What it catches
    A process id, a host name, a temporary folder, the working directory, `git status`, in a prompt
    with static text behind it.

    ## Why it costs
    Each machine, container or checkout has a prefix of its own; what changes while an agent works
    (`git status`) breaks it within a session too.

    ## Bad
    ```python
    system = f"Working directory: {os.getcwd()}\\n{git_status()}\\n{RULES}"
    ```

    ## Good
    ```python
    system = f"{RULES}\\n\\n<environment>\\nWorking directory: {os.getcwd()}\\n</environment>"
    ```

    ## When it is wrong
    When all machines that share a cache have the same value: say so with
    `[tool.agentkv.lint.stability] cwd = "deploy"`. The linter cannot know that of host names,
    which are reported at info.
    """

    code = "KV106"
    name = "host-state-in-prefix"
    rank = 25
    most = "warning"
    advice = "Collect what describes the machine in one block behind the rules."

    def catches(self, spot: Spot, context: Context) -> bool:
        return "host_state" in spot.traits and spot.dynamic

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        cost = super().cost(spot, context)
        if cost is None or spot.level == "call":
            return cost
        said = f"{spot.hole.expr} {spot.hole.name} {spot.hole.why}"
        return replace(cost, severity="info") if _HOST.search(said) else cost
