"""`agentkv lint --logs FILE --source DIR`: the causes of a log, each with the line that renders it.

    log -> agentkv.trace.analyse -> causes -> example calls -> text at the place that changed
        -> template whose fixed text is that text -> the hole there -> an ordinary Finding

What changed in tools, history or settings has no hole: it is at the request that does it. A cause
whose line is not found (or not for sure) is a finding at the line of the log, and says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentkv.lint import suppress
from agentkv.lint.analyse import Analysis, Lint, analyse
from agentkv.lint.discover import discover
from agentkv.lint.finding import Finding
from agentkv.lint.formats import Project
from agentkv.lint.join import Join, Placed
from agentkv.lint.result import FileResult, Report, Reported, order
from agentkv.lint.rule import rule_named
from agentkv.lint.source import Source, SourceError
from agentkv.trace.analyse import analyse as read_log
from agentkv.trace.call import Call, Where
from agentkv.trace.render import Renderer
from agentkv.trace.report import CauseRow, TraceReport
from agentkv.trace.source import Logs

PLAIN = "KV201"
"""What a hole in front of fixed text is where no rule says more of its value."""


@dataclass(slots=True)
class Joined:
    """What a log and a source say together. `trace`: the report of the log."""

    report: Report
    trace: TraceReport
    problems: list[str] = field(default_factory=list)
    """Lines of the log that could not be read, in words."""


def lint_logs(logs: Sequence[str], sources: Iterable[Path], lint: Lint) -> Joined:
    """Lint `sources` by what `logs` show. Findings cost what was measured: tokens of the log that
    were computed again, of all its requests together.

    Raises `LogError` for a log that cannot be opened, `PathMissing` and `SourceError` never for a
    file in a folder.
    """
    config = lint.config
    with Logs(logs) as log:
        renderer = Renderer(config.tokenizer)
        trace = read_log(log, renderer=renderer, problems=log.problems, fixed=False)
        problems = [str(p) for p in log.problems.first]
        more = log.problems.bad - len(problems)
        if more > 0:
            problems.append(f"{more:,} more lines could not be read")
        calls = _examples(log, trace.causes)
    root = lint.project.root
    found = discover(sources, root, exclude=config.exclude, include=config.include)
    project = Project(root, [f.path for f in found], stability=config.stability, sinks=config.sinks)
    lint = replace(lint, project=project)
    results: list[FileResult] = []
    analyses: list[Analysis] = []
    own_logs = {Path(name).absolute() for name in logs if name != "-"}
    for file in found:
        if file.path.absolute() in own_logs:
            continue
        try:
            source = Source.read(file.path)
        except SourceError as error:
            results.append(FileResult(path=str(file.path), skipped=str(error)))
            continue
        analyses.append(analyse(source, lint))
    join = Join(analyses, calls, renderer)
    rows = _report(join, trace, lint, results, analyses)
    return Joined(rows, trace, problems)


def _examples(log: Logs, causes: Iterable[CauseRow]) -> dict[Where, Call]:
    """The calls that causes quote, read again: a log is never held as a whole."""
    wanted = {
        where
        for cause in causes
        for example in (cause.first, cause.worst)
        for where in (example.where, example.compared_with)
        if where is not None
    }
    found: dict[Where, Call] = {}
    if wanted:
        for call in log():
            if call.where in wanted and call.where not in found:
                found[call.where] = call
                if len(found) == len(wanted):
                    break
    return found


def _report(
    join: Join,
    trace: TraceReport,
    lint: Lint,
    results: list[FileResult],
    analyses: list[Analysis],
) -> Report:
    placed: defaultdict[int, list[Finding]] = defaultdict(list)
    loose: list[Reported] = []
    by_id = {id(a): a for a in analyses}
    for cause in trace.causes:
        if cause.rule is not None and cause.rule not in lint.codes:
            continue
        place = join.place(cause)
        if place is None:
            loose.append(_loose(cause, trace))
        else:
            placed[id(place.analysis)].append(_finding(cause, place, trace))
    findings: list[Reported] = []
    for analysis in analyses:
        mine = placed.get(id(analysis), [])
        parted = suppress.split(mine, analysis.document, analysis.source)
        kept = [replace(f, severity=lint.severities.get(f.code, f.severity)) for f in parted.kept]
        done = replace(
            by_id[id(analysis)], findings=tuple(kept), suppressed=tuple(parted.suppressed)
        ).result()
        results.append(done)
        findings += done.findings
    return Report(
        files=results,
        findings=order([*findings, *loose]),
        exact=trace.exact,
        tokenizer=trace.tokenizer,
        target=lint.config.target,
        measured=trace.requests,
    )


def _finding(cause: CauseRow, place: Placed, trace: TraceReport) -> Finding:
    own = place.own
    code, name = _rule(cause)
    if cause.rule is None and own is not None:
        code, name = own.code, own.name
    same = own is not None and own.code == code
    return Finding(
        code=code,
        name=name,
        slice=place.slice,
        message=f"{place.what} {_measured(cause, trace)} {cause.advice}",
        severity=own.severity if own is not None and same else "warning",
        tokens_lost=cause.tokens_lost,
        share=cause.count / trace.requests if trace.requests else 0.0,
        template=place.template,
        request=place.request,
        fix=own.fix if own is not None and same else None,
        before=own.before if own is not None and same else None,
        after=own.after if own is not None and same else None,
        slot=f"log {cause.reason} {code} {place.what}",
        measured=trace.requests,
        at=own.at if own is not None and same else None,
    )


def _rule(cause: CauseRow) -> tuple[str, str]:
    if cause.rule is not None:
        return cause.rule, cause.name
    kind = rule_named(PLAIN)
    return kind.code, kind.name


def _measured(cause: CauseRow, trace: TraceReport) -> str:
    about = "" if trace.exact else "about "
    first = cause.first.where
    return (
        f"measured in {cause.count:,} requests (of {trace.requests:,}): {about}"
        f"{cause.tokens_lost:,} tokens computed again, {cause.share:.0%} of what was lost; "
        f"first at {first.file}:{first.line}."
    )


def _loose(cause: CauseRow, trace: TraceReport) -> Reported:
    """A cause without a line in the source: at its first line in the log."""
    where = cause.first.where
    return Reported(
        code=cause.rule or PLAIN,
        name=cause.name,
        path=where.file,
        line=where.line,
        column=1,
        end_line=where.line,
        end_column=1,
        severity="warning",
        message=(
            f"{cause.segment}: no line of the source is known to render this; "
            f"{_measured(cause, trace)} {cause.advice}"
        ),
        tokens_lost=cause.tokens_lost,
        share=cause.count / trace.requests if trace.requests else 0.0,
        slot=f"log {cause.reason} {cause.rule or ''} {cause.segment}",
        measured=trace.requests,
    )
