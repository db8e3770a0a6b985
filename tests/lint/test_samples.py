"""Every sample: what is bad is found at its line, what looks alike is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.bench.lint_samples import Sample, samples
from agentkv.lint.config import Config
from agentkv.lint.finding import SEVERITIES
from agentkv.lint.result import Report
from agentkv.lint.rule import all_rules, rule_named
from agentkv.lint.run import lint_paths

FOLDER = Path(__file__).parent / "samples"
SAMPLES = samples(FOLDER)
BAD = [s for s in SAMPLES if s.kind == "bad"]
GOOD = [s for s in SAMPLES if s.kind == "good"]

ELSEWHERE = {"unused-suppression"}
"""Rules about the linter's own comments, which have tests of their own."""


def _lint(sample: Sample) -> Report:
    config = Config(cache=False, severity="info", jobs=1)
    report = lint_paths([sample.folder], config, root=sample.folder)
    assert [(f.path, f.skipped) for f in report.skipped] == []
    assert [(f.path, n) for f in report.files for n in f.notes if "internal error" in n] == []
    return report


def _name(sample: Sample) -> str:
    return sample.folder.name


@pytest.mark.parametrize("sample", BAD, ids=_name)
def test_bad_is_found_at_its_line(sample: Sample) -> None:
    where = sample.lines()
    assert where, f"no line of the sample holds {sample.at!r}"
    code = rule_named(sample.rule).code
    worst = SEVERITIES.index(sample.severity)
    found = _lint(sample).findings
    hits = [
        f
        for f in found
        if f.code == code
        and f.rank <= worst
        and any(
            f.line <= line <= f.end_line or line in {a.line for a in f.also}
            for line in where.get(Path(f.path), ())
        )
    ]
    assert hits, [(f.path, f.line, f.code, f.severity) for f in found]


@pytest.mark.parametrize("sample", GOOD, ids=_name)
def test_look_alike_is_quiet(sample: Sample) -> None:
    loud = [f for f in _lint(sample).findings if f.severity != "info"]
    assert [(f.path, f.line, f.code, f.message) for f in loud] == []


def test_every_rule_has_both() -> None:
    names = {rule.name for rule in all_rules()} - ELSEWHERE
    assert {s.rule for s in BAD} == names
    assert {s.rule for s in GOOD if s.rule} == names


def test_there_are_enough_of_each_kind() -> None:
    python = [s for s in SAMPLES if s.python]
    assert sum(s.kind == "bad" for s in python) >= 25
    assert sum(s.kind == "good" for s in python) >= 12
    files = [s for s in SAMPLES if not s.python]
    assert sum(s.kind == "bad" for s in files) >= 10
    assert sum(s.kind == "good" for s in files) >= 4


def test_every_folder_is_in_the_index() -> None:
    folders = {p for kind in ("bad", "good") for p in (FOLDER / kind).iterdir()}
    assert folders == {s.folder for s in SAMPLES}
