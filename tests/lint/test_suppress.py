"""Comments: what they ignore, where they may stand, and what happens to those that ignore nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.lint.run import lint

Project = Callable[[dict[str, str]], Path]


def codes(text: str, name: str, **settings: Any) -> list[str]:
    return sorted(f.code for f in lint(text, filename=name, isolated=True, **settings).findings)


def python(texts: Any, comment: str, where: str) -> str:
    lines = texts.clock.split("\n")
    at = next(i for i, line in enumerate(lines) if "datetime.now()" in line)
    if where == "line":
        lines[at] += f"  {comment}"
    elif where == "before":
        lines.insert(at, f"            {comment}")
    elif where == "elsewhere":
        lines.insert(2, comment)
    else:
        lines.insert(0, comment)
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("comment", "where", "left"),
    [
        ("# agentkv: ignore[KV101] it is the hour", "line", []),
        ("# agentkv: ignore[KV101]", "before", []),
        ("# agentkv: ignore", "line", []),
        ("# agentkv: ignore[KV1]", "line", []),
        ("# agentkv: ignore[timestamp-in-prefix]", "line", []),
        ("# agentkv: ignore[KV3, KV101]", "line", []),
        ("# agentkv: ignore[KV202]", "line", ["KV101"]),
        ("# agentkv: ignore[KV101]", "elsewhere", ["KV101"]),
        ("# agentkv: ignore-file[KV101]", "top", []),
        ("# agentkv: ignore-file[KV2]", "top", ["KV101"]),
        ("# agentkv: stable=deploy", "line", []),
        ("# agentkv: stable=deploy", "before", []),
        ("# noqa: KV101", "line", ["KV101"]),
    ],
)
def test_python(texts: Any, comment: str, where: str, left: list[str]) -> None:
    text = python(texts, comment, where)
    compile(text, "app.py", "exec")
    assert codes(text, "app.py") == left


def test_jinja(texts: Any) -> None:
    assert codes(texts.user, "a.j2") == ["KV202"]
    head, rest = texts.user.split("\n", 1)
    assert codes(f"{head} {{# agentkv: ignore[KV202] one shop #}}\n{rest}", "a.j2") == []
    assert codes(f"{{# agentkv: ignore[KV202] #}}\n{texts.user}", "a.j2") == []
    assert codes(f"{{# agentkv: stable=deploy #}}\n{texts.user}", "a.j2") == []
    assert codes(f"{head}\n{{# agentkv: ignore[KV101] #}}\n{rest}", "a.j2") == ["KV202"]


def test_suppressed_are_counted(texts: Any) -> None:
    report = lint(python(texts, "# agentkv: ignore", "line"), filename="app.py")
    assert not report.findings and report.files[0].suppressed == 1


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("# agentkv: ignore[KV202]", "no finding of KV202"),
        ("# agentkv: ignore[KV999]", "no rule KV999"),
        ("# agentkv: ignore[KV101, KV202]", "no finding of KV202"),
        ("# agentkv: ignore[KV101]", None),
        ("# agentkv: ignore", None),
        ("# agentkv: stable=user", None),
    ],
)
def test_unused(texts: Any, comment: str, said: str | None) -> None:
    text = python(texts, comment, "line")
    found = lint(text, filename="app.py", severity="info", select=["KV001"]).findings
    # Rules that do not run are not missed.
    assert not found or "no rule" in found[0].message
    found = [
        f for f in lint(text, filename="app.py", severity="info").findings if f.code == "KV001"
    ]
    assert bool(found) == (said is not None)
    if said is not None:
        assert said in found[0].message
        assert text.split("\n")[found[0].line - 1][found[0].column - 1 :] == comment


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("a.py", "x = 1  # agentkv: ignore[KV202]\ny = 2\n", "x = 1\ny = 2\n"),
        ("a.py", "x = 1\r\n# agentkv: ignore\r\ny = 2\r\n", "x = 1\r\ny = 2\r\n"),
        (
            "a.py",
            "x = 1  # agentkv: ignore[KV202, KV9]  why\n",
            "x = 1\n",
        ),
    ],
)
def test_unused_are_removed(project: Project, name: str, before: str, after: str) -> None:
    from agentkv.lint.command import Options, run

    root = project({})
    (root / name).write_bytes(before.encode())
    run(Options(paths=(name,), fix=True, settings={"severity": "info"}))
    assert (root / name).read_bytes().decode() == after


def test_only_what_is_needed_stays(project: Project, texts: Any) -> None:
    from agentkv.lint.command import Options, run

    root = project({"app.py": python(texts, "# agentkv: ignore[KV202, KV101] coarse", "line")})
    run(Options(paths=("app.py",), fix=True, settings={"severity": "info"}))
    assert (root / "app.py").read_text() == python(texts, "# agentkv: ignore[KV101] coarse", "line")


def test_a_comment_that_trims_is_left_alone(texts: Any) -> None:
    text = f"{texts.rules}\n{{#- agentkv: ignore[KV101] -#}}\n{{{{ question }}}}\n"
    report = lint(text, filename="a.j2", severity="info")
    (found,) = (f for f in report.findings if f.code == "KV001")
    assert found.fix is not None and found.fix.refused and not found.fix.edits
