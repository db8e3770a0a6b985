"""B068: a header line of the client at the very front, another one for every request."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

import pytest

from agentkv.layout import Arrangement, Memory, arrange
from agentkv.prompt import Prompt, static

RULES = "You are a coding agent.\n" + "Write small functions, and test them.\n" * 200
USER = {"role": "user", "content": "Fix the bug."}
HEADER = re.compile(r"x-billing: v=\d+; cch=[0-9a-f]{5};")


def lay(k: int, *, blocks: bool = True, level: str = "static_first", **kwargs: Any) -> Arrangement:
    header = f"x-billing: v=1; cch={k:05x};"
    content: Any = [{"type": "text", "text": t} for t in (header, RULES)]
    if not blocks:
        content = f"{header}\n{RULES}"
    return arrange([{"role": "system", "content": content}, USER], level, **kwargs)


def text(laid: Arrangement) -> str:
    out = []
    for message in laid.messages:
        content = message["content"]
        out.append(content if isinstance(content, str) else "".join(p["text"] for p in content))
    return "\0".join(out)


def shared(**kwargs: Any) -> int:
    """Characters that two requests share at the front."""
    one, other = (text(lay(k, **kwargs)) for k in (0x1A2B3, 0xC4D5E))
    return sum(1 for _ in takewhile(lambda ab: ab[0] == ab[1], zip(one, other, strict=False)))


@pytest.mark.parametrize("blocks", [True, False])
def test_off_by_default(blocks: bool) -> None:
    """Nothing is taken for a header by its looks; the loss shows."""
    assert shared(blocks=blocks) < 100
    assert lay(1, blocks=blocks).moves == ()


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("rule", [HEADER, "x-billing: v=1; cch="])
def test_the_line_is_dropped_where_a_rule_names_it(blocks: bool, rule: Any) -> None:
    laid = lay(1, blocks=blocks, drop_lines=(rule,))
    assert laid.messages[0]["content"] == RULES
    assert [(m.name, m.to) for m in laid.moves] == [("messages[0].header", "dropped")]
    assert shared(blocks=blocks, drop_lines=(rule,)) > len(RULES)


@pytest.mark.parametrize("blocks", [True, False])
def test_or_moved(blocks: bool) -> None:
    laid = lay(1, blocks=blocks, move_lines=HEADER)
    assert laid.messages[0]["content"] == RULES
    assert "x-billing: v=1; cch=00001;" in text(laid).split("\0")[-1]
    assert laid.tail == ("messages[0].header",)
    assert shared(blocks=blocks, move_lines=HEADER) > len(RULES)
    stays = lay(1, blocks=blocks, move_lines=HEADER, level="canonical")
    assert text(stays) == text(lay(1, blocks=blocks)), "canonical moves no text"


def test_matches_are_exact() -> None:
    part = re.compile(r"x-billing: v=1")  # matches a part of the line only
    for rules in (part, "X-Billing", "-billing", "You are"):
        assert lay(1, drop_lines=rules).moves == ()
    assert lay(1, level="off", drop_lines=HEADER).messages == lay(1, level="off").messages


def test_only_the_front_is_looked_at() -> None:
    head = {"role": "system", "content": "Be kind.\nx-billing: v=1; cch=00001;\n"}
    assert arrange([head, USER], drop_lines=HEADER).moves == ()
    talk = [USER, {"role": "user", "content": "x-billing: v=1; cch=00001;"}]
    assert arrange(talk, drop_lines=HEADER).messages[-1] == talk[-1]
    marked = {"role": "system", "content": [static("x-billing: v=1; cch=00001;")]}
    assert arrange([marked, USER], drop_lines=HEADER).moves == (), "its author said what it is"


def test_several_lines_and_nothing_else() -> None:
    head = {"role": "system", "content": "a: 1\r\nb: 2\nRules."}
    laid = arrange([head, USER], drop_lines=("a: ", "b: "))
    assert laid.messages[0]["content"] == "Rules."
    only = arrange([{"role": "system", "content": "a: 1\n"}, USER], drop_lines="a: ")
    assert [m["role"] for m in only.messages] == ["user"]
    moved = arrange([{"role": "system", "content": "a: 1\n"}, USER], move_lines="a: ")
    assert [m["role"] for m in moved.messages] == ["user"]
    assert "a: 1" in text(moved)


def test_the_session_sees_the_prompt_without_the_line() -> None:
    memory = Memory()
    for k in range(4):
        content = [f"x-billing: v=1; cch={k:05x};\n", static(RULES, name="rules")]
        prompt = Prompt.build([{"role": "system", "content": content}, USER])
        laid = arrange(
            prompt, "learn", memory=memory, session="s", drop_lines=HEADER, allow=("messages[0]",)
        )
        assert laid.proposals == ()


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="empty rule"):
        lay(1, drop_lines=("",))
    with pytest.raises(TypeError, match="drop_lines takes strings"):
        lay(1, drop_lines=(3,))
