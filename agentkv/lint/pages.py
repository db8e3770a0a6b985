"""What the rules say of themselves: one page, a list, or all pages as one document."""

from __future__ import annotations

import json
import re

from agentkv.lint.rule import Rule, all_rules, rule_named


def rules_text(*, as_json: bool = False) -> str:
    """All rules: code, name, certainty, and the first sentence of the page."""
    rows = [
        {
            "code": rule.code,
            "name": rule.name,
            "family": rule.family(),
            "certainty": rule.certainty,
            "summary": first_sentence(rule),
        }
        for rule in all_rules()
    ]
    if as_json:
        return json.dumps({"schema": 1, "rules": rows}, indent=2, ensure_ascii=False) + "\n"
    wide = max((len(r["name"]) for r in rows), default=0)
    lines = []
    family = None
    for row in rows:
        if row["family"] != family:
            family = row["family"]
            lines.append(f"{family}:")
        mark = " (info)" if row["certainty"] == "heuristic" else ""
        lines.append(f"  {row['code']} {row['name']:<{wide}}  {row['summary']}{mark}")
    return "".join(line + "\n" for line in lines)


def page_text(word: str) -> str:
    """The page of a rule, by code or name. Raises KeyError."""
    rule = rule_named(word)
    head = f"# {rule.code} {rule.name}\n\nFamily: {rule.family()}. {_certainty(rule)}"
    return f"{head}\n\n{rule.page()}\n"


def rules_document() -> str:
    """All pages as one Markdown document: docs/rules.md."""
    out = [
        "# Rules of `agentkv lint`",
        "",
        "<!-- Written by `agentkv rule --all --markdown`. Change the rules' docstrings instead. -->",
        "",
        "How to select, ignore and configure them: [lint.md](lint.md).",
    ]
    family = None
    for rule in all_rules():
        if rule.family() != family:
            family = rule.family()
            out += [
                "",
                f"## {family[:1].upper()}{family[1:]}",
                "",
                "| Rule | What |",
                "| --- | --- |",
            ]
            out += [
                f"| [{r.code} {r.name}](#{_anchor(r)}) | {_cell(first_sentence(r))} |"
                for r in all_rules()
                if r.family() == family
            ]
        out += ["", f"### {rule.code} {rule.name}", "", _certainty(rule), "", _demoted(rule.page())]
    return "\n".join(out) + "\n"


def first_sentence(rule: type[Rule]) -> str:
    """The first paragraph of a rule's page, on one line."""
    return " ".join(rule.page().split("\n\n")[0].split())


def _certainty(rule: type[Rule]) -> str:
    if rule.certainty == "heuristic":
        return "Judges by signs: reported at info, so only with `--severity info`."
    return "On by default."


def _anchor(rule: type[Rule]) -> str:
    return f"{rule.code} {rule.name}".lower().replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _demoted(page: str) -> str:
    """Headings two steps down, outside fences. Examples are no Python that stands by itself, so
    their fences say only that they are text."""
    out, fenced = [], False
    for line in page.split("\n"):
        if line.startswith("```"):
            line = "```" if fenced else "```text"
            fenced = not fenced
        elif not fenced and re.match(r"#+ ", line):
            line = "##" + line
        out.append(line)
    return "\n".join(out)
