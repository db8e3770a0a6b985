"""The labelled block at the end of a prompt, which carries what changes from call to call.

Where it goes is decided by what the *next* call will look like. The history that a framework sends
holds the messages, and not this block. So wherever the block stands, the next prompt leaves this
one at the block's first token, and all that follows it is computed again. Hence it is the last
thing before the generation prompt:

- The last message is the user's: the block is added to its end, behind the question. The next
  prompt shares everything up to the question's last token. (In front of the question it would take
  the question with it; a second user message in a row is refused by templates that insist on
  alternating roles.)
- The last message is a tool result, in the middle of an agent's loop: the block is a user message
  of its own behind it. Were it put into the last *user* message, which is further up, each step of
  the loop would compute all steps before it again.

  A template that refuses a user message there (Mistral's) leaves only the last user message:
  `trailing=False`, which costs the steps of the current turn, but no earlier turn.

What is computed again by the next call is then the block and the answer behind it, never the
history. Re-sending old blocks would save that too, but the prompt would hold stale clocks that
nobody asked for.

The block starts with a space: the tokenizers of the Llama 3 and Qwen families read a question mark
and the line breaks behind it as one token, and would end the common prefix one token early.

The block is the user's in trust: text from the system message only ever loses authority here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from agentkv.prompt.document import Document
from agentkv.prompt.prompt import Message
from agentkv.prompt.segment import Segment

_PRIMING = re.compile(r"(?:[:：=]|->|=>|→|⇒|<[A-Za-z_][\w.-]*>|\{|\[|\bA\.)$")


def context_block(unit: Segment) -> Segment:
    """A unit that was moved out of the system message, with its label."""
    label = unit.name.replace('"', "'")
    text = unit.content.strip("\n")
    return replace(unit, role="user", content=f'<context name="{label}">\n{text}\n</context>')


def document_block(documents: Sequence[Document], name: str, role: str) -> Segment:
    """Documents as one unit, whose `items` are their ids in order."""
    inner = "\n".join(d.block for d in documents)
    return Segment(
        name=name,
        kind="documents",
        role=role,
        content=f"<documents>\n{inner}\n</documents>",
        stability=documents[0].stability,
        declared=True,
        items=tuple(d.id for d in documents),
    )


def refusal(messages: Sequence[Message]) -> str | None:
    """Why nothing can be put at the end of these messages; None if it can."""
    if not any(m.role == "user" for m in messages):
        return "there is no user message that could carry it."
    if messages[-1].role == "assistant":
        return "the prompt ends with the assistant's own words, which must stay last."
    if messages[-1].role == "user":
        return _primes("".join(u.content for u in messages[-1].units))
    return None


def _primes(text: str) -> str | None:
    """Why nothing may follow a question that ends in mid-air: "Review: ... Sentiment:"."""
    found = _PRIMING.search(text.rstrip())
    if found:
        return f"the question ends with {found.group(0)!r}, which the answer is to go on from."
    return None


def append(
    messages: Sequence[Message], blocks: Sequence[Segment], *, trailing: bool = True
) -> tuple[Message, ...]:
    """`messages` with the blocks behind them, one part each.

    Into the last message if it is the user's; else as a user message of their own (`trailing`), or
    into the last user message.
    """
    at = len(messages) - 1
    if messages[at].role != "user" and trailing:
        first, *rest = blocks
        units = (first, *(replace(b, content=" \n\n" + b.content) for b in rest))
        return (*messages, Message("user", {}, units))
    while messages[at].role != "user":
        at -= 1
    spaced = (replace(b, content=" \n\n" + b.content) for b in blocks)
    user = replace(messages[at], units=(*messages[at].units, *spaced))
    return (*messages[:at], user, *messages[at + 1 :])
