"""KV001."""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rule import Rule
from agentkv.lint.template import Document


class UnusedSuppression(Rule):
    """A comment ignores findings that are not there (any more).

    ## What it catches
    `# agentkv: ignore[...]` comments (and their twins in Jinja and YAML) whose rules find nothing
    there, and codes that no rule has.

    ## Why it costs
    A comment that ignores nothing hides the next finding on its line, which nobody has looked at.

    ## Bad
    ```python
    PROMPT = "You are a helpful assistant."  # agentkv: ignore[KV101] the clock is coarse
    ```

    ## Good
    ```python
    PROMPT = "You are a helpful assistant."
    ```

    ## When it is wrong
    Rules that did not run (`--ignore`, `per-file-ignores`) are not missed. A template comment that
    trims the white space around it is not removed by `--fix`, since the prompt would change.
    """

    code = "KV001"
    name = "unused-suppression"
    certainty = "heuristic"

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        """Nothing: what a comment ignores is known only when all other rules have spoken, so the
        pipeline reports it (`agentkv.lint.suppress`)."""
        return iter(())
