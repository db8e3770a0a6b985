"""KV212 late-system-message."""

from __future__ import annotations

from collections.abc import Iterator

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.price import ORDER
from agentkv.lint.rule import Rule
from agentkv.lint.rules._hole import percent
from agentkv.lint.spot import late_messages, request_of
from agentkv.lint.template import Document, Template


class LateSystemMessage(Rule):
    """A fixed system message stands behind messages that change.

    ## What it catches
    A system message without variables, of `--min-tokens` or more, behind the conversation or the
    user's message.

    ## Why it costs
    It is the same in every call and is computed again in every call. Many chat templates also refuse
    a system message that is not the first.

    ## Bad
    ```python
    messages = [*history, {"role": "user", "content": question}, {"role": "system", "content": RULES}]
    ```

    ## Good
    ```python
    messages = [{"role": "system", "content": RULES}, *history, {"role": "user", "content": question}]
    ```

    ## When it is wrong
    When it is an update in the middle of a conversation, appended once and then left where it is; or
    a guard that is meant to be read last.
    """

    code = "KV212"
    name = "late-system-message"
    rank = 40

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        for template in document.templates:
            for i in sorted(late_messages(template)):
                part = template.parts[i]
                if part.role != "system" or not _changes(template, i, context):
                    continue
                tokens = sum(context.tokens(p) for p in part.pieces)
                if tokens < max(context.min_tokens, context.target.granularity):
                    continue
                share = context.traffic.share("turn")
                yield Finding(
                    code=self.code,
                    name=self.name,
                    slice=part.slice or template.slice,
                    message=(
                        f"A fixed system message of {tokens:,} tokens stands behind messages that "
                        f"change; {percent(share, 'it')}. Put it first."
                    ),
                    severity=ORDER.severity(tokens * share, "warning"),
                    tokens_lost=round(tokens * share),
                    static_behind=tokens,
                    share=share,
                    template=template,
                    request=request_of(template, document),
                    slot=f"{template.name}/system#{i}",
                    at=(i, 0),
                )


def _changes(template: Template, part: int, context: Context) -> bool:
    """Whether anything in front of a message may change."""
    before = template.parts[:part]
    if template.name.startswith("request") and template.syntax == "none":
        # A recorded request: what the user and the model said is another thing in the next one.
        return any(p.role in ("user", "assistant", "tool") for p in before)
    return any(p.placeholder for p in before) or any(
        i < part and context.level(h) not in ("build", "deploy") for i, _, h in template.holes()
    )
