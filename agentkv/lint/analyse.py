"""One file, from its text to findings: detect, read, check, price, propose, suppress."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentkv.lint import suppress
from agentkv.lint.config import Config
from agentkv.lint.context import Context
from agentkv.lint.discover import relative
from agentkv.lint.finding import Finding, Fix, Severity
from agentkv.lint.formats import Format, Project, detect
from agentkv.lint.result import FileResult, reported
from agentkv.lint.rule import Rule, find
from agentkv.lint.source import Source
from agentkv.lint.target import target
from agentkv.lint.template import Document
from agentkv.lint.tokens import Counter, counter

HEAD = 4096
"""Characters that a format sees of a file before it claims it."""


@dataclass(slots=True)
class Lint:
    """Everything that does not change from file to file. A worker process makes its own."""

    config: Config
    project: Project
    rules: list[Rule]
    codes: frozenset[str]
    """Codes of the rules."""
    context: Context
    counter: Counter
    severities: dict[str, Severity] = field(default_factory=dict)
    """Severities that the configuration gives to codes."""

    @classmethod
    def of(cls, config: Config, project: Project) -> Lint:
        """Raises `ConfigError` and `TokenizerError`."""
        tokens = counter(config.tokenizer)
        context = Context(
            count=tokens.count,
            exact=tokens.exact,
            target=target(config.target),
            traffic=config.mix(),
            min_tokens=config.min_tokens,
            stability=dict(config.stability),
        )
        rules = config.rules()
        codes = frozenset(r.code for r in rules)
        return cls(config, project, rules, codes, context, tokens, config.severity_of())


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was found in one file, still with its slices."""

    source: Source
    format: Format | None
    document: Document
    findings: tuple[Finding, ...] = ()
    suppressed: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    def result(self) -> FileResult:
        return FileResult(
            path=self.source.path,
            format=self.format.name if self.format is not None else None,
            digest=self.source.digest,
            prompts=len(self.document.templates),
            requests=len(self.document.requests),
            skipped=self.document.skipped,
            notes=self.notes,
            findings=tuple(reported(f, self.source) for f in self.findings),
            suppressed=len(self.suppressed),
            alone=_alone(self.format, self.document, self.source),
        )


def analyse(source: Source, lint: Lint, *, format: str | None = None) -> Analysis:
    """The findings of one source. `format` overrules detection. Never raises for what is in it."""
    inner = relative(Path(source.path), lint.project.root)
    name = format or lint.config.format_of(inner)
    kind = detect(source.path, source.text[:HEAD], name=name)
    if kind is None:
        return Analysis(source, None, Document(format=""))
    try:
        document = suppress.stated(kind.read(source, lint.project), source)
    except Exception as error:  # a bug of ours must not hide the findings of all other files
        return Analysis(source, kind, Document(format=kind.name, skipped=_bug(kind.name, error)))
    off = lint.config.off(inner)
    ran = lint.codes - off
    notes = list(document.notes)
    found: list[Finding] = []
    if document.templates or document.requests:
        found = find(
            document, lint.context, lint.rules, failed=lambda r, e: notes.append(_bug(r.code, e))
        )
        found = [f for f in found if f.code in ran]
    parted = suppress.split(found, document, source)
    kept = list(_proposed(parted.kept, document, source, lint.context, lint.project))
    if suppress.CODE in ran and document.suppressions:
        kept += suppress.unused(document, source, parted.used, ran)
    kept = [_graded(f, lint.severities) for f in kept]
    if document.named or not document.editable:
        kept = [_shown(f, document) for f in kept]
    kept.sort(key=lambda f: (f.slice.start, f.code))
    return Analysis(source, kind, document, tuple(kept), tuple(parted.suppressed), tuple(notes))


def _graded(finding: Finding, severities: dict[str, Severity]) -> Finding:
    severity = severities.get(finding.code, finding.severity)
    return finding if severity == finding.severity else replace(finding, severity=severity)


def _shown(finding: Finding, document: Document) -> Finding:
    """A finding in a file that is not edited, with the name of its line."""
    at = bisect_right(document.named, finding.slice.start, key=lambda one: one[0]) - 1
    said = f"{finding.message} ({document.named[at][1]})" if at >= 0 else finding.message
    fix = finding.fix
    if not document.editable and fix is not None and fix.edits:
        fix = Fix(
            applicability="display",
            message=fix.message,
            refused=f"A {document.format} is not edited here: {fix.message[:1].lower()}{fix.message[1:]}.",
        )
    return replace(finding, message=said, fix=fix)


def _proposed(
    findings: list[Finding],
    document: Document,
    source: Source,
    context: Context,
    project: Project,
) -> Iterator[Finding]:
    if not findings:
        return
    # Only when there is something to fix: it parses YAML and more.
    from agentkv.lint.fixes import propose

    for finding in findings:
        if finding.fix is not None:
            yield finding
            continue
        try:
            yield finding.with_fix(propose(document, finding, source, context, project))
        except Exception as error:
            refused = Fix(applicability="display", message="", refused=_bug("the fix", error))
            yield replace(finding, fix=refused)


def _bug(where: str, error: Exception) -> str:
    return f"internal error in {where}: {type(error).__name__}: {error}"


def _alone(kind: Format | None, document: Document, source: Source) -> bool:
    """Whether nothing but this file decided the result, so that it may be kept by its content."""
    if kind is None:
        return True
    alone = getattr(kind, "alone", None)
    return alone is not None and not document.templates and bool(alone(source.text))
