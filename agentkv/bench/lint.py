"""`agentkv lint` on real material: prompts with labels, samples, code that is no prompt, peers."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from agentkv.bench import lint_peers, lint_prompts, lint_quiet
from agentkv.bench.check import Report
from agentkv.bench.lint_peers import Case
from agentkv.bench.lint_prompts import Found, Row
from agentkv.bench.lint_samples import INDEX, Sample, samples
from agentkv.bench.prompts import TracesMissing
from agentkv.lint.config import Config
from agentkv.lint.finding import SEVERITIES
from agentkv.lint.result import Report as Findings
from agentkv.lint.result import Reported
from agentkv.lint.rule import rule_named
from agentkv.lint.run import lint_paths

RECALL = 0.95
FALSE = 0.03
PARTS = ("prompts", "samples", "peers", "quiet")


def run(
    parts: Sequence[str] = PARTS,
    *,
    traces: Path | None = None,
    folder: Path | None = None,
    paths: Sequence[Path] = (),
    peers: Path | None = None,
    tokenizer: Path | None = None,
) -> list[Report]:
    """The parts that are asked for, in order. What is not there is skipped, and the report says why.

    `traces`: the folder that holds `prompts/`; `folder`: that of the samples; `paths`: code without
    prompts; `peers`: a folder with the programs of other linters.
    """
    traces = traces or Path(os.environ.get("AGENTKV_TRACES", "../shared/traces"))
    folder = folder or Path("tests/lint/samples")
    make = {
        "prompts": lambda: prompts(traces),
        "samples": lambda: sampled(folder),
        "peers": lambda: compared(traces, folder, peers, tokenizer),
        "quiet": lambda: [lint_quiet.run(paths)],
    }
    return [report for part in PARTS if part in parts for report in make[part]()]


# -- templates with labels -------------------------------------------------------------------------


def prompts(traces: Path) -> list[Report]:
    """Precision and recall on labelled templates, by rule family."""
    fixed = lint_prompts.corrections()
    with tempfile.TemporaryDirectory(prefix="agentkv-lint-") as name:
        root = Path(name).resolve()
        try:
            rows = lint_prompts.write(traces, root, fixed)
        except TracesMissing as error:
            return [_skipped("lint prompts", str(error))]
        assign(rows, lint_paths([root], Config(cache=False), root=root))
    return [_report(rows, fixed)]


def assign(rows: Sequence[Row], found: Findings) -> None:
    """Give every row the findings of its file."""
    by_path = {str(row.path): row for row in rows}
    for one in found.findings:
        by_path[one.path].found.append(Found(one.code, one.line, one.end_line))


def _report(rows: Sequence[Row], fixed: Sequence[lint_prompts.Correction]) -> Report:
    report = Report("lint prompts", f"Findings on {len(rows)} labelled prompt templates")
    flag = [row for row in rows if row.label == "FLAG"]
    fine = [row for row in rows if row.label == "OK"]
    for family, prefix in (("volatile", "KV1"), ("order", "KV2")):
        wanted = [r for r in flag if r.family == family]
        named = [r for r in rows if any(f.code.startswith(prefix) for f in r.found)]
        right = [r for r in named if r.label != "OK"]
        report.rows.append(
            {
                "family": f"{family} ({prefix}xx)",
                "expected": len(wanted),
                "found": sum(bool(r.fitting) for r in wanted),
                "recall": _share(sum(bool(r.fitting) for r in wanted), len(wanted)),
                "files flagged": len(named),
                "rightly": len(right),
                "precision": _share(len(right), len(named)),
            }
        )
    flagged = [r for r in rows if r.flagged]
    hits = sum(bool(r.fitting) for r in flag)
    wrong = [r for r in fine if r.flagged]
    report.rows.append(
        {
            "family": "all",
            "expected": len(flag),
            "found": hits,
            "recall": _share(hits, len(flag)),
            "files flagged": len(flagged),
            "rightly": len(flagged) - len(wrong),
            "precision": _share(len(flagged) - len(wrong), len(flagged)),
        }
    )
    recall = hits / len(flag)
    drafted = [r for r in rows if r.drafted == "FLAG"]
    drafts = sum(bool(r.fitting) for r in drafted)
    report.notes.append(
        f"with the labels as drafted: {drafts} of {len(drafted)} FLAG rows found by a fitting rule, "
        f"{sum(r.flagged for r in drafted)} by any."
    )
    false = len(wrong) / len(fine)
    report.check("FLAG rows found, fitting rule", f"{recall:.3f}", f">= {RECALL}", recall >= RECALL)
    report.check("OK rows flagged", f"{false:.3f}", f"<= {FALSE}", false <= FALSE)
    for row in flag:
        if not row.fitting:
            report.notes.append(f"missed: {_line(row)}")
    for row in wrong:
        report.notes.append(f"false:  {_line(row)}")
    for row in rows:
        if row.label in ("WARN", "INFO"):
            report.notes.append(f"{row.label}:   {_line(row)}")
    for one in fixed:
        report.notes.append(f"label corrected: {one.idx} {one.name} -> {one.label}: {one.why}")
    return report


def _line(row: Row) -> str:
    codes = ", ".join(f"{f.code}@{f.first}" for f in row.found) or "nothing"
    return f"{row.idx} {row.repo} {row.name} ({row.label}, {row.family}): {codes}"


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


# -- samples ---------------------------------------------------------------------------------------


def sampled(folder: Path) -> list[Report]:
    """What is found in the samples, by rule family."""
    if not (folder / INDEX).is_file():
        return [_skipped("lint samples", f"no samples in {folder} (--samples DIR).")]
    folder = folder.resolve()
    listed = samples(folder)
    report = Report("lint samples", f"Findings in {len(listed)} samples")
    config = Config(cache=False, severity="info", jobs=1)
    families: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    missed, false = [], []
    for sample in listed:
        family = f"{rule_named(sample.rule).code[:3]}xx" if sample.rule else "no prompts"
        counts = families[family]
        # A sample is a project of its own: modules of others may have the same names.
        said = lint_paths([sample.folder], config, root=sample.folder).findings
        if sample.kind == "bad":
            counts[0] += 1
            if _found(sample, said):
                counts[1] += 1
            else:
                missed.append(sample)
        else:
            counts[2] += 1
            if any(one.severity != "info" for one in said):
                counts[3] += 1
                false.append(sample)
    for family, (bad, hits, good, wrong) in sorted(families.items()):
        report.rows.append(
            {"family": family, "bad": bad, "found": hits, "look-alikes": good, "flagged": wrong}
        )
    report.check("bad samples missed", str(len(missed)), "0", not missed)
    report.check("look-alikes flagged", str(len(false)), "0", not false)
    report.notes += [f"missed: {s.folder.name}" for s in missed]
    report.notes += [f"false:  {s.folder.name}" for s in false]
    return [report]


def _found(sample: Sample, said: Sequence[Reported]) -> bool:
    """Whether a finding of the sample's rule stands at one of its lines."""
    code = rule_named(sample.rule).code
    where = sample.lines()
    return any(
        one.code == code
        and one.rank <= SEVERITIES.index(sample.severity)
        and any(
            one.line <= line <= one.end_line or line in {also.line for also in one.also}
            for line in where.get(Path(one.path), ())
        )
        for one in said
    )


# -- peers -----------------------------------------------------------------------------------------


def compared(traces: Path, folder: Path, bin: Path | None, tokenizer: Path | None) -> list[Report]:
    """This linter beside others, on the samples and on the labelled templates."""
    out = []
    if (folder / INDEX).is_file():
        root = folder.resolve()
        tools, notes = lint_peers.tools(root, bin, tokenizer)
        listed = samples(root)
        cases = [
            Case(s.folder.name, s.kind == "bad", tuple(s.files), s.lines() if s.at else None)
            for s in listed
        ]
        title = f"Linters on {len(cases)} samples, at their default severity"
        out.append(lint_peers.compare(title, cases, tools))
        out[-1].notes += notes
    else:
        out.append(_skipped("lint peers", f"no samples in {folder} (--samples DIR)."))
    with tempfile.TemporaryDirectory(prefix="agentkv-lint-") as name:
        root = Path(name).resolve()
        try:
            rows = lint_prompts.write(traces, root, lint_prompts.corrections())
        except TracesMissing as error:
            return [*out, _skipped("lint peers", str(error))]
        tools, _ = lint_peers.tools(root, bin, tokenizer)
        cases = [
            Case(r.name, r.label == "FLAG", (r.path,), {r.path: set(r.places)})
            for r in rows
            if r.label in ("FLAG", "OK")
        ]
        out.append(lint_peers.compare("Linters on labelled templates (FLAG, OK)", cases, tools))
    return out


def _skipped(bench: str, why: str) -> Report:
    report = Report(bench, bench)
    report.notes.append(f"skipped: {why}")
    return report
