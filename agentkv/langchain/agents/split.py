"""`split_prompt()`: a system message whose fixed and changing parts are declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import SystemMessage

from agentkv.prompt.marks import static as _static
from agentkv.prompt.marks import volatile as _volatile

Text = str | Mapping[str, str]


def split_prompt(*, static: Text, dynamic: Text = "", points: bool = True) -> SystemMessage:
    """A system message in which `static` stays and `dynamic` goes behind the history.

    Each is a text, or a mapping of names to texts; the names are how reports and the block at the
    end call them. Use it in `@dynamic_prompt`, or as `system_prompt=` of `create_agent`.
    `points=False` promises that the dynamic texts refer to nothing around them.

        @dynamic_prompt
        def prompt(request):
            return split_prompt(static=RULES, dynamic={"clock": now(), "user": request.state["user"]})

    Raises ValueError when there is no static text.
    """
    fixed, changing = _named(static, "instructions"), _named(dynamic, "context")
    if not fixed:
        raise ValueError("split_prompt needs a static text: nothing else can be reused.")
    parts: list[str | dict[Any, Any]] = [_static(text, name) for name, text in fixed.items()]
    parts += [_volatile(text, name, points=points) for name, text in changing.items()]
    return SystemMessage(parts)


def _named(text: Text, name: str) -> dict[str, str]:
    texts = {name: text} if isinstance(text, str) else dict(text)
    return {key: value for key, value in texts.items() if value}
