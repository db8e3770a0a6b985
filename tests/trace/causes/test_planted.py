"""Sixteen logs with one planted cause each are named, four healthy ones are silent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkv.trace.analyse import analyse
from agentkv.trace.readers import Problems, read
from agentkv.trace.report import TraceReport
from tests.trace.causes.logs import EXPECTED, FORMATS, HEALTHY, PLANTED, REQUESTS, Shape, log


def found(folder: Path, kind: str, shape: Shape, form: str, *, fixed: bool = False) -> TraceReport:
    path = folder / "log.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in log(kind, shape, form)))
    problems = Problems()
    report = analyse(lambda: read([path], problems=problems), problems=problems, fixed=fixed)
    assert problems.counts.total() == 0 and report.requests == REQUESTS
    return report


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_cause_is_named(kind: str, form: str, tmp_path: Path) -> None:
    report = found(tmp_path, kind, Shape(), form)
    reasons, rules = EXPECTED[kind]
    assert report.causes, "nothing was found"
    first = report.causes[0]
    assert first.reason in reasons and first.rule in rules
    assert first.tokens_lost > 100 and first.share > 0.9
    assert sum(c.tokens_lost for c in report.causes) <= report.prompt_tokens
    assert report.rates.now < report.rates.ceiling


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_log_is_silent(kind: str, form: str, tmp_path: Path) -> None:
    for shape in (Shape(), Shape(seed=1, sessions=4, named=False, domain="kitchen")):
        report = found(tmp_path, kind, shape, form)
        assert report.causes == ()
        assert report.first_calls + report.appended >= REQUESTS - 1
        assert report.rates.now == pytest.approx(report.rates.ceiling, abs=0.01)


@pytest.mark.parametrize("place", ["head", "middle", "tail"])
@pytest.mark.parametrize("kind", ["clock", "uuid"])
def test_wherever_the_value_stands(kind: str, place: str, tmp_path: Path) -> None:
    for style in range(4):
        shape = Shape(seed=style, place=place, style=style, domain="coder", named=False)
        report = found(tmp_path, kind, shape, "openai")
        reasons, rules = EXPECTED[kind]
        assert report.causes and report.causes[0].reason in reasons
        assert report.causes[0].rule in rules, (style, report.causes[0])


@pytest.mark.parametrize("kind", PLANTED)
def test_a_mended_copy_is_no_worse(kind: str, tmp_path: Path) -> None:
    report = found(tmp_path, kind, Shape(), "openai", fixed=True)
    rates = report.rates
    assert rates.fixed is not None and rates.now <= rates.fixed <= rates.ceiling
    if report.causes[0].fix is not None:
        assert rates.fixed > rates.now + 0.5 * (rates.ceiling - rates.now)
