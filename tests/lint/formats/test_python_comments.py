"""`# agentkv:` comments."""

from __future__ import annotations

import pytest

from agentkv.lint.formats.python.comments import suppressions
from tests.lint.formats.python_help import read

TEXT = """import os  # agentkv: ignore[KV101] the clock is wanted
# agentkv: ignore
x = "# agentkv: ignore[KV999] in a string"
# agentkv: ignore-file[KV2, KV301]: generated
y = 1  # agentkv: stable=deploy one brand a deployment
é = "é"  # noqa  # agentkv: ignore[KV1]
z = 2  # agentkv: nonsense
w = 3  # agentkv: stable=never
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_kinds(newline: str, mark: str) -> None:
    text = mark + TEXT.replace("\n", newline)
    found = suppressions(text)
    assert [(s.line, s.codes, s.whole_file, s.alone, s.stable) for s in found] == [
        (1, ("KV101",), False, False, None),
        (2, (), False, True, None),
        (4, ("KV2", "KV301"), True, True, None),
        (5, (), False, False, "deploy"),
        (6, ("KV1",), False, False, None),
    ]
    assert found[0].reason == "the clock is wanted" and found[2].reason.endswith("generated")
    assert found[3].reason == "one brand a deployment"
    assert all("agentkv:" in text[s.slice.start : s.slice.end] for s in found)
    assert text[found[0].slice.start : found[0].slice.end].startswith("# agentkv: ignore[KV101]")


def test_they_come_with_the_document_even_without_prompts() -> None:
    document, _ = read("x = 1  # agentkv: ignore[KV101] why\n")
    assert len(document.suppressions) == 1


def test_a_text_that_breaks_off() -> None:
    assert len(suppressions("x = 1  # agentkv: ignore\ny = (\n")) == 1
