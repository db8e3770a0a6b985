"""Every form of a report, read by what reads such things."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from agentkv.lint.output import FORMATS, Style, render
from agentkv.lint.output.bar import bars
from agentkv.lint.result import Also, Change, FileResult, Remedy, Report, Reported
from agentkv.lint.rule import all_rules
from agentkv.lint.run import lint

Project = Callable[[dict[str, str]], Path]
SECRET = "zebra"


def finding(**changes: Any) -> Reported:
    values: dict[str, Any] = {
        "code": "KV101",
        "name": "timestamp-in-prefix",
        "path": "src/my app.py",
        "line": 3,
        "column": 5,
        "end_line": 3,
        "end_column": 12,
        "severity": "warning",
        "message": f"{{now}} 50 % of <{SECRET}> & `co|ls`: \"x\", 'y'\nsecond line",
        "tokens_lost": 120,
        "static_behind": 240,
        "share": 0.5,
        "fix": Remedy(
            "unsafe",
            f"move {SECRET}",
            (Change(3, 5, 3, 12, ""), Change(9, 1, 9, 1, f"{SECRET} {{now}}\n")),
            ("same units",),
        ),
        "before": (("build", 10), ("call", 5), ("build", 240)),
        "after": (("build", 250), ("call", 5)),
        "also": (Also(7, 2, f"made here: {SECRET}"),),
        "slot": f"ask/{SECRET}#1",
        "prompt": "0:900",
        "excerpt": f"    {{now}} {SECRET}",
    }
    return Reported(**{**values, **changes})


@pytest.fixture
def report() -> Report:
    findings = [
        finding(),
        finding(code="KV202", name="user-data-before-shared", severity="error", fix=None, also=()),
        finding(
            path="sys.j2",
            severity="info",
            end_line=5,
            end_column=1,
            message="bad \x00\x1b[31m character\ud7ff\uffff",
            fix=Remedy("display", "", refused=f"the text points: {SECRET}"),
        ),
    ]
    files = [
        FileResult(path="src/my app.py", format="python", prompts=2, findings=tuple(findings[:2])),
        FileResult(path="sys.j2", format="jinja", prompts=1, findings=tuple(findings[2:])),
        FileResult(path="ok.j2", format="jinja", prompts=1),
        FileResult(path="none.py", format="python"),
        FileResult(path="bad.py", format="python", skipped="not valid Python: x <&> (line 1)"),
    ]
    return Report(files=files, findings=findings, target="vllm")


def test_every_form_is_written_and_ends_with_a_line(report: Report) -> None:
    for form in FORMATS:
        for one in (report, Report(files=[], findings=[])):
            assert render(one, form).endswith("\n"), form
    with pytest.raises(ValueError, match="unknown format 'xml'; known: full, concise"):
        render(report, "xml")


@pytest.mark.parametrize("form", FORMATS)
def test_redacted_reports_hold_no_text_of_a_prompt(report: Report, form: str) -> None:
    assert SECRET in render(report, form)
    text = render(report, form, Style(redact=True))
    assert SECRET not in text
    assert "my app.py" in unquote(text) or form == "full"


@pytest.mark.parametrize("form", FORMATS)
def test_no_form_but_full_and_concise_is_coloured(report: Report, form: str) -> None:
    clean = Report(files=report.files, findings=report.findings[:2])
    coloured = render(clean, form, Style(colour=True))
    assert ("\033[" in coloured) == (form in ("full", "concise"))
    assert re.sub(r"\033\[[\d;]*m", "", coloured) == render(clean, form)


def test_json_is_the_stable_shape(report: Report) -> None:
    data = json.loads(render(report, "json"))
    assert list(data) == ["schema", "findings", "files"] and data["schema"] == 1
    assert data["files"] == {"checked": 4, "prompts": 4, "skipped": 1}
    assert [list(f) for f in data["findings"]] == [
        [
            "code",
            "name",
            "path",
            "line",
            "column",
            "end_line",
            "end_column",
            "severity",
            "message",
            "tokens_lost",
            "fix",
        ]
    ] * 3
    first = data["findings"][0]
    assert (first["code"], first["line"], first["tokens_lost"]) == ("KV101", 3, 120)
    assert first["fix"] == {
        "applicability": "unsafe",
        "edits": [
            {"line": 3, "column": 5, "end_line": 3, "end_column": 12, "text": ""},
            {"line": 9, "column": 1, "end_line": 9, "end_column": 1, "text": f"{SECRET} {{now}}\n"},
        ],
    }
    assert data["findings"][1]["fix"] is None
    assert data["findings"][2]["fix"] == {"applicability": "display", "edits": []}


def test_jsonl_says_everything_line_by_line(report: Report) -> None:
    rows = [json.loads(line) for line in render(report, "jsonl").split("\n")[:-1]]
    assert [r["type"] for r in rows] == ["finding"] * 3 + ["skipped", "summary"]
    assert rows[0]["before"] == [["build", 10], ["call", 5], ["build", 240]]
    assert rows[2]["fix"]["refused"] == f"the text points: {SECRET}"
    assert rows[-1]["tokens_lost"] == report.tokens_lost == 240


# -- SARIF -----------------------------------------------------------------------------------------


def test_sarif_is_what_the_standard_asks_for(report: Report) -> None:
    """The constraints of the 2.1.0 schema on the objects that are used."""
    data = json.loads(render(report, "sarif"))
    assert data["version"] == "2.1.0" and set(data) == {"$schema", "version", "runs"}
    (run,) = data["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "agentkv"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", driver["semanticVersion"])
    ids = [r["id"] for r in driver["rules"]]
    assert ids == sorted(set(ids)) == ["KV101", "KV202"]
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"] and rule["help"]["text"]
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"]
        (location,) = result["locations"]
        where(location["physicalLocation"])
        for other in result.get("relatedLocations", ()):
            where(other["physicalLocation"])
        for fix in result.get("fixes", ()):
            assert fix["description"]["text"] and fix["artifactChanges"]
            for change in fix["artifactChanges"]:
                uri(change["artifactLocation"]["uri"])
                assert change["replacements"]
                for one in change["replacements"]:
                    region(one["deletedRegion"])
                    assert isinstance(one["insertedContent"]["text"], str)
    assert [len(r.get("fixes", ())) for r in run["results"]] == [1, 0, 0]
    prints = [r["partialFingerprints"]["agentkv/v1"] for r in run["results"]]
    assert len(set(prints)) == 3
    (told,) = run["invocations"]
    assert told["executionSuccessful"] is True
    assert "not valid Python" in told["toolExecutionNotifications"][0]["message"]["text"]


def where(location: dict[str, Any]) -> None:
    uri(location["artifactLocation"]["uri"])
    region(location["region"])


def uri(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._~!$&'()*+,;=:@/%-]+", text), text


def region(found: dict[str, int]) -> None:
    assert all(isinstance(v, int) and v >= 1 for v in found.values())
    if "endLine" in found:
        start = (found["startLine"], found["startColumn"])
        assert start <= (found["endLine"], found["endColumn"])


def test_sarif_regions_name_the_slot(project: Project, texts: Any) -> None:
    """Columns count code points and end behind the last one."""
    text = texts.user.replace("You help", "🙂 Du hilfst ")
    project({"sys.j2": text})
    data = json.loads(render(lint("sys.j2"), "sarif"))
    (result,) = data["runs"][0]["results"]
    found = result["locations"][0]["physicalLocation"]["region"]
    line = text.split("\n")[found["startLine"] - 1]
    assert found["startLine"] == found["endLine"]
    assert line[found["startColumn"] - 1 : found["endColumn"] - 1] == "{{ user_name }}"


# -- CI --------------------------------------------------------------------------------------------


def test_github_commands_are_one_line_each_and_escaped(report: Report) -> None:
    lines = render(report, "github").split("\n")[:-1]
    assert len(lines) == 4
    pattern = re.compile(r"::(error|warning|notice) ([^\n]*?)::([^\r\n]*)")
    read = []
    for line in lines:
        hit = pattern.fullmatch(line)
        assert hit is not None
        settings = dict(pair.split("=", 1) for pair in hit[2].split(","))
        message = hit[3].replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
        read.append((hit[1], settings, message))
    kind, settings, message = read[0]
    assert kind == "warning" and settings["file"] == "src/my app.py"
    assert (settings["line"], settings["col"], settings["endColumn"]) == ("3", "5", "12")
    assert message == report.findings[0].message + " [fix: unsafe]"
    assert [k for k, _, _ in read] == ["warning", "error", "notice", "notice"]
    assert "col" not in read[2][1]  # a range over lines has no columns


def test_gitlab_code_quality(report: Report) -> None:
    issues = json.loads(render(report, "gitlab"))
    assert len({i["fingerprint"] for i in issues}) == len(issues) == 3
    for issue in issues:
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert issue["description"] and issue["check_name"]
        assert issue["location"]["lines"]["begin"] >= 1
        assert not issue["location"]["path"].startswith(("/", "./"))
    assert render(Report(files=[], findings=[]), "gitlab") == "[]\n"


def test_fingerprints_survive_moves(report: Report) -> None:
    moved = Report(files=[], findings=[finding(line=30, end_line=30)])
    one = json.loads(render(report, "gitlab"))[0]["fingerprint"]
    assert json.loads(render(moved, "gitlab"))[0]["fingerprint"] == one


def test_junit_is_xml_whatever_is_in_it(report: Report) -> None:
    root = ET.fromstring(render(report, "junit"))
    assert root.tag == "testsuites"
    suites = {s.get("name"): s for s in root}
    assert list(suites) == ["src/my app.py", "sys.j2", "ok.j2", "bad.py"]
    failures = root.findall(".//failure")
    assert len(failures) == 3 == int(root.get("failures", 0))
    assert failures[0].get("message") == report.findings[0].message + " [fix: unsafe]"
    assert int(root.get("tests", 0)) == len(root.findall(".//testcase")) == 5
    for suite in suites.values():
        assert int(suite.get("tests", 0)) == len(suite.findall("testcase"))
        assert int(suite.get("failures", 0)) == len(suite.findall("testcase/failure"))
        assert int(suite.get("skipped", 0)) == len(suite.findall("testcase/skipped"))


def test_markdown_rows_stay_rows(report: Report) -> None:
    text = render(report, "markdown")
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert len(rows) == 5
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 5
    assert f"<{SECRET}>" not in text.replace("\\<", "")


# -- people ----------------------------------------------------------------------------------------


def test_full_points_at_the_slot(project: Project, texts: Any) -> None:
    project({"sys.j2": texts.user.replace("You help", "日本 help")})
    lines = render(lint("sys.j2"), "full").split("\n")
    assert lines[0].startswith("sys.j2:1:9 KV202 user-data-before-shared  {{ user_name }} (user)")
    assert lines[1] == " 1 | 日本 help {{ user_name }}."
    # Two wide characters take two columns each in a terminal.
    assert lines[2] == "   | " + " " * 10 + "^" * 15
    assert any(line.lstrip().startswith("before ") for line in lines)
    assert any(line.lstrip().startswith("after ") for line in lines)
    assert "1 finding (about " in lines[-4] + lines[-3] + lines[-2]


def test_full_says_why_there_is_no_fix(report: Report) -> None:
    text = render(report, "full")
    assert f"= no fix: the text points: {SECRET}" in text
    assert f"= fix: move {SECRET}" in text
    assert "skipped bad.py: not valid Python" in text
    assert "1 skipped: not valid Python" in text


def test_long_lines_are_cut_around_the_slot() -> None:
    long = finding(
        message="m", excerpt="a" * 900 + "{now}" + "b" * 900, column=901, end_column=906, also=()
    )
    text = render(Report(files=[], findings=[long]), "full")
    shown, marks = text.split("\n")[1:3]
    assert len(shown) < 180
    assert shown[marks.index("^") : marks.rindex("^") + 1] == "{now}"


def test_bars_are_to_scale_and_show_the_smallest() -> None:
    rows = bars((("build", 1000), ("call", 1), ("turn", 999)), (("build", 2000),), Style(width=84))
    before, after, legend = rows
    assert before.count("█") == 30 - 1 + 1 or before.count("█") in (29, 30)
    assert before.count("▁") == 1 and "1,000 of 2,000 kept" in before
    assert after.count("█") == 60
    assert legend.split() == ["█", "static", "▁", "call", "▂", "turn"]
    assert bars((), (), Style()) == []


def test_summary_says_what_was_looked_at(project: Project, texts: Any) -> None:
    project({"a.j2": texts.clean, "b.py": "x = 1\n"})
    assert render(lint("."), "concise") == "0 findings; 1 prompt in 1 of 2 files\n"


def test_sarif_describes_rules_that_exist(report: Report) -> None:
    data = json.loads(render(report, "sarif"))
    names = {r.code: r.name for r in all_rules()}
    for rule in data["runs"][0]["tool"]["driver"]["rules"]:
        assert rule["name"] == names[rule["id"]]
