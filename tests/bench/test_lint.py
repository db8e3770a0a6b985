"""The lint bench: how it writes templates as files, and how it judges findings."""

from __future__ import annotations

import ast
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkv.bench import lint, lint_peers, lint_prompts, lint_quiet
from agentkv.bench.lint_peers import Case, Tool
from agentkv.bench.lint_prompts import Found, Row
from agentkv.bench.lint_samples import samples
from agentkv.bench.prompts import TracesMissing
from agentkv.cli.main import app

RULES = "You are a careful clerk. Your task is to answer the question from the text. " * 12


def _record(kind: str, name: str, path: str, template: str, *exprs: str) -> dict[str, Any]:
    places = [{"expr": e, "offset": template.index(e), "frac": 0.0} for e in exprs]
    return {"repo": "a/b", "path": path, "name": name, "kind": kind} | {
        "template": template,
        "placeholders": places,
    }


RECORDS = [
    _record("str", "ASK", "src/prompts.py", f'Now: {{time}}\n"Rules": {RULES}', "{time}"),
    _record(
        "fstring",
        "return@L7",
        "src/prompts.py",
        f'Topic: ${{query.strip()}}\n{{"a": 1}} """x"""\n{RULES}',
        "${query.strip()}",
    ),
    _record(
        "jinja2", "calm.j2", "prompts/calm.j2", f"{RULES}\n{{{{ question }}}}", "{{ question }}"
    ),
]
LABELS: list[dict[str, Any]] = [
    {"idx": 1, "expected": "FLAG", "why": "first per-call placeholder {time} at 5/700 chars"},
    {
        "idx": 2,
        "expected": "FLAG",
        "why": "first per-call placeholder ${query.strip()} at 7/9 chars",
    },
    {"idx": 3, "expected": "OK", "why": "no per-call placeholder"},
]


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    (folder / "prompts").mkdir(parents=True)
    with gzip.open(folder / lint_prompts.TEMPLATES, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(r) + "\n" for r in RECORDS)
    rows = [
        {**label, "name": r["name"], "path": r["path"]}
        for label, r in zip(LABELS, RECORDS, strict=True)
    ]
    (folder / lint_prompts.LABELS).write_text("\n".join(map(json.dumps, rows)) + "\n")
    return folder


def _value(path: Path, name: str) -> str:
    """What the constant is, or what the function returns with names for its fields."""
    space: dict[str, Any] = {}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), space)
    made = space[name]
    return str(made(" <Q> ")) if callable(made) else str(made)


def test_templates_become_files_that_say_the_same(traces: Path, tmp_path: Path) -> None:
    ask, topic, calm = lint_prompts.write(traces, tmp_path / "out", [])
    assert _value(ask.path, "ASK") == RECORDS[0]["template"]
    shown = RECORDS[1]["template"].replace("${query.strip()}", "<Q>")
    assert _value(topic.path, "prompt_l7") == shown
    assert calm.path.read_text("utf-8") == RECORDS[2]["template"]
    assert (ask.family, topic.family, ask.times) == ("volatile", "order", ask.places)
    for row, text in ((ask, "{time}"), (topic, "{query.strip()}"), (calm, "{{ question }}")):
        lines = row.path.read_text("utf-8").splitlines()
        assert [text in lines[n - 1] for n in row.places] == [True] * len(row.places) != []


def test_labels_of_another_order_are_refused(traces: Path, tmp_path: Path) -> None:
    file = traces / lint_prompts.LABELS
    file.write_text("\n".join(reversed(file.read_text().splitlines())) + "\n")
    with pytest.raises(ValueError, match="row 0"):
        lint_prompts.write(traces, tmp_path / "out", [])


def test_no_traces(tmp_path: Path) -> None:
    with pytest.raises(TracesMissing):
        lint_prompts.write(tmp_path, tmp_path / "out", [])
    (report,) = lint.prompts(tmp_path)
    assert not report.rows and "--traces" in report.notes[0]


@pytest.mark.parametrize(
    ("found", "fits"),
    [
        (Found("KV101", 4, 4), True),
        (Found("KV101", 3, 3), False),  # volatile content, but not where the time is
        (Found("KV205", 3, 5), True),
        (Found("KV205", 6, 9), False),
        (Found("KV401", 4, 4), False),  # no rule of this kind can be right about a placeholder
    ],
)
def test_fitting(found: Found, fits: bool) -> None:
    row = Row(
        idx=1,
        repo="a/b",
        name="X",
        kind="str",
        label="FLAG",
        drafted="FLAG",
        family="volatile",
        path=Path("x.py"),
        places=frozenset({3, 4}),
        times=frozenset({4}),
        found=[found],
    )
    assert bool(row.fitting) is fits


def test_prompts_are_judged(traces: Path) -> None:
    (report,) = lint.prompts(traces)
    total = report.rows[-1]
    assert (total["expected"], total["found"], total["precision"]) == (2, 2, 1.0)
    assert [c.ok for c in report.checks] == [True, True]


def test_corrections_name_real_labels_and_say_why() -> None:
    fixed = lint_prompts.corrections()
    assert len({(c.idx, c.name) for c in fixed}) == len(fixed)
    assert all(c.label in ("FLAG", "WARN", "INFO", "OK") and len(c.why) > 40 for c in fixed)


def test_samples_are_counted(tmp_path: Path) -> None:
    for name, text in (("bad", f"It is {{{{ now() }}}}.\n{RULES}"), ("good", RULES)):
        (tmp_path / name / "prompts").mkdir(parents=True)
        (tmp_path / name / "prompts/x.j2").write_text(f"You are a judge. {text}\n")
    (tmp_path / "index.toml").write_text(
        """[[sample]]
kind = "bad"
rule = "template-clock"
folder = "bad"
at = "now()"
[[sample]]
kind = "good"
rule = "template-clock"
folder = "good"
why = "no clock"
[[sample]]
kind = "bad"
rule = "set-iteration"
folder = "bad"
at = "now()"
"""
    )
    (report,) = lint.sampled(tmp_path)
    rows = {row["family"]: (row["bad"], row["found"], row["flagged"]) for row in report.rows}
    assert rows == {"KV1xx": (1, 1, 0), "KV3xx": (1, 0, 0)}
    assert [c.ok for c in report.checks] == [False, True]
    assert samples(tmp_path)[0].lines() == {tmp_path / "bad/prompts/x.j2": {1}}


def test_peers_are_compared(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.py", "b.py", "c.txt")]
    for file in files:
        file.write_text("x\n")
    cases = [
        Case("a", True, (files[0],), {files[0]: {2}}),
        Case("b", False, (files[1],)),
        Case("c", True, (files[2],)),
    ]
    seen = []

    def find(given: Any) -> lint_peers.Places:
        seen.append(list(given))
        return {files[0]: {1}, files[1]: {1}}

    report = lint_peers.compare("t", cases, [Tool("loud", frozenset({".py"}), find)])
    assert seen == [files[:2]]
    (row,) = report.rows
    assert {k: v for k, v in row.items() if k != "seconds"} == {
        "linter": "loud",
        "bad": 2,
        "readable": 1,
        "found": 1,
        "at the line": 0,
        "good": 1,
        "false": 1,
    }


def test_a_peer_that_fails_is_a_note(tmp_path: Path) -> None:
    program = tmp_path / "pcdlint"
    program.write_text("#!/bin/sh\necho no such option >&2\nexit 2\n")
    program.chmod(0o755)
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    report = lint_peers.compare("t", [Case("a", True, (file,))], [lint_peers.pcdlint(program)])
    assert report.rows == []
    assert report.notes == ["pcdlint: status 2 of pcdlint, which said: no such option"]


def test_peers_that_are_missing_are_said(tmp_path: Path) -> None:
    found, notes = lint_peers.tools(tmp_path, tmp_path, None)
    assert [t.name for t in found] == ["agentkv lint"]
    assert [n.split(":")[0] for n in notes] == ["pcdlint", "cachedrift", "kvlint"]


def test_quiet_on_plain_code(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(ast.unparse(ast.parse(Path(__file__).read_text("utf-8"))))
    report = lint_quiet.run([tmp_path], jobs=1)
    assert report.rows[-1]["findings"] == 0 and report.rows[-1]["lines"] > 50
    assert {c.name for c in report.checks if c.ok} >= {
        "findings at default severity",
        "files that could not be analysed",
    }


def test_command_says_what_is_not_there(tmp_path: Path) -> None:
    words = ["bench", "lint", "--traces", str(tmp_path), "--samples", str(tmp_path)]
    words += [w for part in ("prompts", "samples", "peers") for w in ("--part", part)]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    notes = [b["notes"][0] for b in json.loads(done.stdout)["benches"]]
    assert len(notes) == 4 and all(n.startswith("skipped: ") for n in notes)


def test_command_refuses_a_path_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "lint", str(tmp_path / "no"), "--part", "quiet"])
    assert done.exit_code == 2 and "no" in done.output
