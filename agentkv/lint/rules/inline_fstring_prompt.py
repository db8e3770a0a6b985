"""KV213 inline-fstring-prompt."""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.rule import Rule
from agentkv.lint.source import Slice
from agentkv.lint.template import Document, Text

LEAST = 200
"""Static tokens from which on one f-string is a prompt that should be a constant."""


class InlineFstringPrompt(Rule):
    """One large f-string makes the whole prompt where it is sent.

    ## What it catches
    An f-string with 200 or more static tokens and two or more values of the call in between.

    ## Why it costs
    Nothing of it can be shared, tested, measured or marked for a cache on its own, and it is easy to
    add one more `{value}` near the front without seeing what that does.

    ## Bad
    ```python
    prompt = f\"\"\"You are ... {user} ... (400 lines) ... {question}\"\"\"
    ```

    ## Good
    ```python
    RULES = \"\"\"You are ... (395 lines)\"\"\"

    messages = [
        {"role": "system", "content": RULES},
        {"role": "user", "content": f"{user}\\n\\n{question}"},
    ]
    ```

    ## When it is wrong
    When every value in it is a constant. This is advice, at info.
    """

    code = "KV213"
    name = "inline-fstring-prompt"
    certainty = "heuristic"
    rank = 95

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for template in document.templates:
            if template.syntax != "fstring":
                continue
            static = sum(
                context.tokens(p)
                for _, _, p in template.pieces()
                if isinstance(p, Text) and _inside(p.slice, template.slice)
            )
            changing = [
                h for _, _, h in template.holes() if context.level(h) not in ("build", "deploy")
            ]
            if static < LEAST or len(changing) < 2:
                continue
            yield Finding(
                code=self.code,
                name=self.name,
                slice=template.slice,
                message=(
                    f"One f-string of {static:,} static tokens with {len(changing)} values in it makes "
                    "the whole prompt. A constant head and a short tail can be shared and tested."
                ),
                severity="info",
                template=template,
                slot=f"{template.name}/fstring",
            )


def _inside(part: Slice | None, whole: Slice) -> bool:
    """Whether a text stands in the f-string, and is no constant of its own that is named in it."""
    return part is not None and whole.start <= part.start and part.end <= whole.end
