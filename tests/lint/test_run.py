"""Running over files: counts, comments, processes, what is skipped, and the sum of what is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.lint.config import Config, ConfigError
from agentkv.lint.discover import PathMissing
from agentkv.lint.result import Reported, total
from agentkv.lint.run import Stdin, lint, lint_paths, lint_source
from agentkv.lint.source import Source

Project = Callable[[dict[str, str]], Path]


def codes(report: Any) -> list[str]:
    return [f.code for f in report.findings]


def test_text_path_and_source_agree(project: Project, texts: Any) -> None:
    root = project({"sys.j2": texts.user})
    by_path = lint(root / "sys.j2").findings
    by_text = lint(texts.user, filename="sys.j2").findings
    by_source = lint_source(Source("sys.j2", texts.user)).findings
    key = [(f.code, f.line, f.column, f.tokens_lost, f.slot) for f in by_path]
    assert len(key) == 1
    assert [(f.code, f.line, f.column, f.tokens_lost, f.slot) for f in by_text] == key
    assert [(f.code, f.line, f.column, f.tokens_lost, f.slot) for f in by_source] == key


def test_settings_of_the_file_hold_and_wrong_ones_raise(project: Project, texts: Any) -> None:
    root = project({"sys.j2": texts.user, "agentkv.toml": "[lint]\nignore = ['KV2']\n"})
    assert not lint(root).findings
    assert codes(lint(root, isolated=True)) == ["KV202"]
    with pytest.raises(ConfigError, match="unknown key `colour`"):
        lint(root, colour=True)
    with pytest.raises(PathMissing):
        lint(root / "none")


def test_counts_say_what_was_looked_at(project: Project, texts: Any) -> None:
    root = project(
        {
            "app.py": texts.clock,
            "plain.py": "print('hello')\n",
            "broken.py": "prompt = 'You are a helpful assistant.\n",
            "sys.j2": texts.clean,
        }
    )
    (root / "binary.txt").write_bytes(b"\0\1\2")
    (root / "latin.txt").write_bytes("é".encode("latin-1"))
    report = lint(root)
    assert codes(report) == ["KV101"]
    assert (len(report.checked), report.prompts, report.prompt_files) == (3, 2, 2)
    why = {Path(f.path).name: f.skipped for f in report.skipped}
    assert set(why) == {"broken.py", "binary.txt", "latin.txt"}
    assert "not valid Python" in str(why["broken.py"])
    assert why["binary.txt"] == "a binary file" and "UTF-8" in str(why["latin.txt"])


def test_a_named_file_that_nobody_knows_is_told(project: Project) -> None:
    root = project({"notes.rst": "hello", "x.txt": "hello"})
    assert not lint(root).skipped
    assert [f.skipped for f in lint(root / "notes.rst").skipped] == [
        "not a kind of file that holds prompts"
    ]


def test_a_text_without_a_name_is_asked_for_one() -> None:
    (result,) = lint_paths([], Config(cache=False), stdin=Stdin("import openai\n", "-")).skipped
    assert "--stdin-filename" in str(result.skipped)


def test_processes_change_nothing(project: Project, texts: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("agentkv.lint.run._FEW_BYTES", 0)
    root = project(
        {f"p{i}/sys{i}.j2": texts.user for i in range(12)}
        | {f"p{i}/app{i}.py": texts.clock for i in range(12)}
    )
    one = lint(root, jobs=1, cache=False)
    two = lint(root, jobs=2, cache=False)
    assert len(one.findings) == 24
    assert one.findings == two.findings and one.files == two.files


def test_severity_hides_and_says_so(project: Project, texts: Any) -> None:
    root = project({"sys.j2": texts.user + "{# agentkv: ignore[KV101] #}\n"})
    usual = lint(root)
    assert codes(usual) == ["KV202"] and usual.hidden == 1
    assert sorted(codes(lint(root, severity="info"))) == ["KV001", "KV202"]
    strict = lint(root, severity="error")
    assert not strict.findings and strict.hidden == 2


def test_a_rule_that_fails_hides_no_other(
    project: Project, texts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentkv.lint.rule import rule_named

    def fail(self: Any, document: Any, context: Any) -> Any:
        raise RuntimeError("out of order")

    monkeypatch.setattr(rule_named("KV101"), "check", fail)
    report = lint(project({"sys.j2": texts.user}), jobs=1, cache=False)
    assert codes(report) == ["KV202"]
    assert report.files[0].notes == ("internal error in KV101: RuntimeError: out of order",)


def test_a_format_that_fails_skips_its_file(
    project: Project, texts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentkv.lint.formats import formats

    def fail(source: Any, project: Any) -> Any:
        raise RuntimeError("out of paper")

    jinja = next(f for f in formats() if f.name == "jinja")
    monkeypatch.setattr(jinja, "read", fail, raising=False)
    report = lint(project({"sys.j2": texts.user, "app.py": texts.clock}), jobs=1, cache=False)
    assert codes(report) == ["KV101"]
    assert [f.skipped for f in report.skipped] == [
        "internal error in jinja: RuntimeError: out of paper"
    ]


def test_paths_without_a_configuration_file(project: Project, texts: Any) -> None:
    root = project({"sys.j2": texts.user})
    assert codes(lint_paths([root])) == ["KV202"]
    assert codes(lint_paths([root], Config(ignore=("KV2",)))) == []


# -- the sum ---------------------------------------------------------------------------------------


def found(behind: int, share: float, lost: int | None = None, prompt: str = "p") -> Reported:
    return Reported(
        code="KV201",
        name="x",
        path="a",
        line=1,
        column=1,
        end_line=1,
        end_column=2,
        severity="warning",
        message="",
        static_behind=behind,
        share=share,
        tokens_lost=round(behind * share) if lost is None else lost,
        prompt=prompt,
    )


def test_total_counts_no_token_twice() -> None:
    assert total([]) == 0
    assert total([found(1000, 1.0)]) == 1000
    assert total([found(1000, 1.0), found(400, 1.0)]) == 1000
    # 600 tokens behind the first only are lost in half the calls, the rest in all of them.
    assert total([found(1000, 0.5), found(400, 1.0)]) == 700
    assert total([found(1000, 1.0), found(400, 0.5)]) == 1000
    assert total([found(1000, 1.0), found(400, 1.0, prompt="q")]) == 1400
    assert total([found(0, 0.0, 50, prompt=""), found(0, 0.0, 60, prompt="")]) == 110
    # 2,000 tokens of conversation behind both are lost once.
    assert total([found(1000, 1.0, 3000), found(400, 1.0, 2400)]) == 3000


def test_total_is_between_the_largest_and_the_sum() -> None:
    from itertools import product

    for shares in product((0.1, 0.5, 1.0), repeat=3):
        group = [found(b, s) for b, s in zip((900, 500, 100), shares, strict=True)]
        lost = [f.tokens_lost for f in group]
        assert max(lost) <= total(group) <= sum(lost)
        assert total(group) == total(group[::-1])


def test_dearest_first(project: Project, texts: Any) -> None:
    root = project({"a.j2": texts.user, "b.py": texts.clock})
    assert [f.code for f in lint(root).findings] == ["KV101", "KV202"]


def test_this_repository_lints_its_own_prompts_clean() -> None:
    """With its own settings: the demo shows a bad layout on purpose, and says so there."""
    root = Path(__file__).parents[2]
    if not (root / "pyproject.toml").is_file() or not (root / "examples").is_dir():
        pytest.skip("not a checkout")
    folders = [root / "examples", root / "agentkv" / "demo", root / "agentkv" / "bench"]
    report = lint(folders, cache=False)
    assert [(f.path, f.line, f.code) for f in report.findings] == []
    assert report.prompts > 10
    loud = lint(folders, isolated=True, cache=False).findings
    assert {f.code for f in loud} == {"KV101", "KV202"}
