"""`optimize()`: a LangChain chat template, re-laid so that its renderings share their beginning."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from agentkv.layout import tail
from agentkv.layout.arrangement import Move, Refusal
from agentkv.layout.passages import fields, passages
from agentkv.layout.system import settle
from agentkv.prompt.prompt import Message
from agentkv.prompt.segment import Segment, stability_rank

if TYPE_CHECKING:
    from langchain_core.prompts import ChatPromptTemplate

    T = TypeVar("T", bound=ChatPromptTemplate)

_ROLES = {
    "SystemMessagePromptTemplate": "system",
    "HumanMessagePromptTemplate": "user",
    "AIMessagePromptTemplate": "assistant",
    "SystemMessage": "system",
    "HumanMessage": "user",
    "AIMessage": "assistant",
}


class Optimized(NamedTuple):
    """A template that was re-laid, what moved, and what was left and why (names of variables)."""

    template: Any
    moves: tuple[Move, ...]
    refused: tuple[Refusal, ...]


def optimize(
    template: T,
    *,
    volatile: Collection[str] = (),
    stable: Collection[str] = (),
    stability: Mapping[str, str] | None = None,
    trailing: bool = False,
) -> Optimized:
    """The same template with fixed text first and what changes at the end.

    In leading system messages, a line with a variable that changes by the call or the turn goes to
    a labelled block at the end of the last human message; a line with a slower variable goes behind
    the fixed lines of its message. How long a variable lasts is said by `volatile` (changes by the
    call), `stable` (never) and `stability` (names to levels), else by its name (`now`, `user_id`,
    ...); a name that says nothing stays where it is, and so does what lasts a deployment. `trailing=True` puts the block into a human
    message of its own at the end, for templates that end with a placeholder.

    Only whole lines move, the lines of a labelled or tagged passage together, and only where no
    text points at them (see `arrange`). The result has the same variables and the same class;
    optimizing it again changes nothing. Raises TypeError for what is no `ChatPromptTemplate`.
    """
    from langchain_core.prompts import ChatPromptTemplate

    if not isinstance(template, ChatPromptTemplate):
        raise TypeError(f"optimize takes a ChatPromptTemplate, got {type(template).__name__}.")
    given = {**dict.fromkeys(_names(stable), "build"), **dict.fromkeys(_names(volatile), "call")}
    given.update(stability or {})
    for level in given.values():
        stability_rank(level)
    fixed = [n for n, v in template.partial_variables.items() if not callable(v)]
    for name, value in template.partial_variables.items():
        if callable(value):
            given.setdefault(name, "call")

    moves: list[Move] = []
    refused: list[Refusal] = []
    messages: list[Any] = list(template.messages)
    stay = _stay(messages, trailing)
    blocks: list[Segment] = []
    for i, message in enumerate(messages):
        if _role(message) != "system":
            break
        text = _text_prompt(message, refused)
        if text is None:
            continue
        units = passages(i, text.template, text.partial_variables, given, fixed, refused)
        kept, gone = settle(Message("system", {}, units), stay, {}, moves, refused)
        if not kept.units and gone:
            # A system message with no line left would be another prompt, and templates differ on it.
            kept = replace(kept, units=units)
            lost = {g.name for g in gone}
            moves[:] = [m for m in moves if m.name not in lost]
            refused.extend(Refusal(g.name, "nothing else is in its message.") for g in gone)
            gone = []
        blocks.extend(gone)
        changed = "".join(u.content for u in kept.units)
        if gone:
            changed = changed.rstrip("\n")
        if changed != text.template:
            messages[i] = _with_text(message, changed)
    _selectors(messages, refused)
    if blocks:
        blocks.sort(key=lambda u: stability_rank(u.stability))
        messages = _append(messages, blocks, trailing)
    if not moves:
        return Optimized(template, (), tuple(refused))
    copied = template.model_copy(update={"messages": messages})
    return Optimized(copied, tuple(moves), tuple(refused))


def _names(names: Collection[str]) -> Collection[str]:
    return (names,) if isinstance(names, str) else names


def _role(message: Any) -> str:
    """The role of a template's message; "" for placeholders, few-shot blocks and the like."""
    for base in type(message).__mro__:
        if base.__name__ in _ROLES:
            return _ROLES[base.__name__]
    return ""


def _text_prompt(message: Any, refused: list[Refusal]) -> Any:
    """The prompt of a system message whose text can be taken apart; None if there is none."""
    prompt = getattr(message, "prompt", None)
    if prompt is None:
        return None
    if isinstance(prompt, list):
        if len(prompt) != 1 or not isinstance(prompt[0].template, str):
            if any(p.input_variables for p in prompt):
                refused.append(Refusal("system", "its content is a list of several parts."))
            return None
        prompt = prompt[0]
    if not prompt.input_variables and not prompt.partial_variables:
        return None
    if prompt.template_format != "f-string":
        why = f"a {prompt.template_format} template may hold blocks, so its lines are not moved."
        refused.append(Refusal("system", why))
        return None
    return prompt


def _with_text(message: Any, text: str) -> Any:
    """A copy of a message template with another f-string; its variables are read from it."""
    prompt = message.prompt[0] if isinstance(message.prompt, list) else message.prompt
    made = _prompt_like(prompt, text)
    prompts: Any = [made] if isinstance(message.prompt, list) else made
    return message.model_copy(update={"prompt": prompts})


def _prompt_like(prompt: Any, text: str) -> Any:
    names = sorted({n for n in fields(text) if n not in prompt.partial_variables})
    return prompt.model_copy(update={"template": text, "input_variables": names})


def _stay(messages: Sequence[Any], trailing: bool) -> str | None:
    """Why nothing can go to the end of these messages; None if it can."""
    last = messages[-1] if messages else None
    role = _role(last)
    if role == "assistant":
        return "the template ends with the assistant's own words, which must stay last."
    if trailing:
        return None
    if role != "user":
        name = getattr(last, "variable_name", None)
        what = f"the placeholder {name!r}" if name else f"a {type(last).__name__}"
        return f"the template ends with {what}; trailing=True puts a human message behind it."
    prompt = getattr(last, "prompt", None)
    if prompt is None:
        return "the last human message is a fixed one, without a template."
    last_text = prompt[-1] if isinstance(prompt, list) else prompt
    if not isinstance(last_text.template, str):
        return None  # An image: the block is a text part of its own behind it.
    if last_text.template_format != "f-string":
        return f"the last human message is a {last_text.template_format} template."
    unit = Segment(name="question", kind="question", role="user", content=last_text.template)
    return tail.refusal([Message("user", {}, (unit,))])


def _append(messages: list[Any], blocks: Sequence[Segment], trailing: bool) -> list[Any]:
    """The messages with the blocks at the end: of the last human message, or in one of their own."""
    from langchain_core.prompts import HumanMessagePromptTemplate, PromptTemplate

    if trailing:
        text = " \n\n".join(b.content for b in blocks)
        return [*messages, HumanMessagePromptTemplate.from_template(text)]
    text = "".join(" \n\n" + b.content for b in blocks)
    last = messages[-1]
    if isinstance(last.prompt, list):
        part = PromptTemplate.from_template(text)
        return [*messages[:-1], last.model_copy(update={"prompt": [*last.prompt, part]})]
    return [*messages[:-1], _with_text(last, last.prompt.template + text)]


def _selectors(messages: Sequence[Any], refused: list[Refusal]) -> None:
    """Examples that are chosen by the call are named: they stay where they are, in their order."""
    for message in messages:
        if getattr(message, "example_selector", None) is not None:
            why = "its examples are chosen by the call; all that stands behind them changes with them."
            refused.append(Refusal(type(message).__name__, why))
