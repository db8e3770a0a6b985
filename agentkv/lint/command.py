"""What `agentkv lint` does with its options: the one function behind the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentkv.lint import stream
from agentkv.lint.analyse import Lint
from agentkv.lint.baseline import Baseline
from agentkv.lint.config import ConfigError, Found, load
from agentkv.lint.discover import PathMissing, discover
from agentkv.lint.finding import SEVERITIES
from agentkv.lint.formats import Project, detect
from agentkv.lint.output import Style, render
from agentkv.lint.output.statistics import statistics_text
from agentkv.lint.output.style import plural, summary
from agentkv.lint.pages import page_text, rules_text
from agentkv.lint.repair import Repair, by_path
from agentkv.lint.result import Report
from agentkv.lint.run import Stdin, lint_paths, start
from agentkv.lint.source import Source, SourceError
from agentkv.lint.stream import say
from agentkv.lint.tokens import TokenizerError

CLEAN, FINDINGS, FAILED = 0, 1, 2


class WrongUsage(ValueError):
    """The options cannot be followed; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line. `settings` are overrides of the configuration; None is not given."""

    paths: tuple[str, ...] = ()
    form: str | None = None
    output: Path | None = None
    redact: bool = False
    quiet: bool = False
    statistics: bool = False
    show_files: bool = False
    show_settings: bool = False
    list_rules: bool = False
    explain: str | None = None
    fix: bool = False
    unsafe_fixes: bool = False
    diff: bool = False
    fix_only: bool = False
    stdin_filename: str | None = None
    input_format: str | None = None
    baseline: Path | None = None
    update_baseline: bool = False
    since: str | None = None
    exit_zero: bool = False
    config: Path | None = None
    isolated: bool = False
    watch: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    force_exclude: bool = False
    logs: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def repairs(self) -> bool:
        return self.fix or self.fix_only or self.diff


def run(options: Options) -> int:
    """Do it and give the exit status. Raises `WrongUsage`."""
    try:
        return _run(options)
    except (ConfigError, PathMissing, TokenizerError) as error:
        raise WrongUsage(str(error)) from None


def _run(options: Options) -> int:
    options = _with_logs(options)
    if options.list_rules:
        return _emit(options, rules_text(as_json=options.form == "json"))
    if options.explain is not None:
        try:
            return _emit(options, page_text(options.explain))
        except KeyError:
            raise WrongUsage(
                f"no rule has the code or name {options.explain!r}; --list-rules lists them."
            ) from None
    stdin = _stdin(options)
    paths = [Path(p) for p in options.paths if p != "-"]
    if not paths and stdin is None and not options.paths:
        paths = [Path()]
    found = load(
        start(paths, stdin),
        file=options.config,
        isolated=options.isolated,
        **options.settings,
    )
    if options.exclude:
        from msgspec.structs import replace as changed

        config = changed(found.config, exclude=(*found.config.exclude, *options.exclude))
        found = changed(found, config=config)
    if options.input_format is not None:
        try:
            detect("", "", name=options.input_format)
        except ValueError as error:
            raise WrongUsage(str(error)) from None
    if options.show_settings:
        return _emit(options, _settings_text(found))
    if options.show_files:
        return _emit(options, _files_text(found, paths, stdin, options))
    if options.logs:
        return _logs(options, found, paths)
    if options.watch:
        if stdin is not None:
            raise WrongUsage("--watch needs files; standard input does not change.")
        return _watch(options, found, paths)
    return _once(options, found, paths, stdin)


def _stdin(options: Options) -> Stdin | None:
    if "-" not in options.paths:
        if options.stdin_filename is not None:
            raise WrongUsage("--stdin-filename names standard input; give `-` as the path too.")
        return None
    if len(options.paths) > 1:
        raise WrongUsage("`-` stands alone: give either paths or standard input.")
    try:
        source = Source.decode(sys.stdin.buffer.read(), options.stdin_filename or "-")
    except SourceError as error:
        raise WrongUsage(f"standard input is {error}.") from None
    return Stdin(source.text, source.path)


# -- one run ---------------------------------------------------------------------------------------


def _once(options: Options, found: Found, paths: list[Path], stdin: Stdin | None) -> int:
    known = _baseline(options, found)

    def look() -> Report:
        return lint_paths(
            paths,
            found.config,
            root=found.root,
            stdin=stdin,
            since=options.since,
            format=options.input_format,
            baseline=known,
            as_found=options.force_exclude,
        )

    report = look()
    if options.update_baseline:
        return _update_baseline(options, found, report)
    if options.repairs:
        return _repair(options, found, report, stdin, look)
    _print(options, report)
    return status(report, found, options)


def status(report: Report, found: Found, options: Options) -> int:
    """The exit status of a report."""
    read = [f for f in report.files if f.skipped is None]
    # Nothing was looked at: not a clean result, except where a hook's files were all left out.
    if not read and (report.skipped or not options.force_exclude):
        return FAILED
    if options.exit_zero:
        return CLEAN
    config = found.config
    if config.max_loss is not None and report.tokens_lost > config.max_loss:
        return FINDINGS
    # A budget alone replaces the usual condition; with --fail-on beside it, both hold.
    if config.max_loss is not None and options.settings.get("fail_on") is None:
        return CLEAN
    if config.fail_on == "never":
        return CLEAN
    least = SEVERITIES.index(config.fail_on)
    return FINDINGS if any(f.rank <= least for f in report.findings) else CLEAN


def _with_logs(options: Options) -> Options:
    """With `--source`, every path is a log; without it, the paths are the source."""
    if options.sources and not options.logs:
        raise WrongUsage("--source says where the prompts of a log come from: give --logs too.")
    if not options.logs:
        return options
    for name in ("fix", "fix_only", "diff", "watch", "update_baseline", "since"):
        if getattr(options, name):
            raise WrongUsage(f"--logs cannot be combined with --{name.replace('_', '-')}.")
    if not options.sources:
        if "-" in options.paths:
            raise WrongUsage("`-` is no source: give --logs - to read a log from standard input.")
        return options
    return replace(options, logs=(*options.logs, *options.paths), paths=options.sources)


def _logs(options: Options, found: Found, paths: list[Path]) -> int:
    """Findings as a log measured them. Imported late: nobody else needs the log readers."""
    from agentkv.lint.logs import lint_logs
    from agentkv.trace.readers import LogError

    config = found.config
    lint = Lint.of(config, Project(found.root, stability=config.stability, sinks=config.sinks))
    try:
        joined = lint_logs(options.logs, paths, lint)
    except LogError as error:
        raise WrongUsage(str(error)) from None
    report = joined.report
    least = SEVERITIES.index(config.severity)
    shown = [f for f in report.findings if f.rank <= least]
    report.hidden, report.findings = len(report.findings) - len(shown), shown
    known = _baseline(options, found)
    if known is not None:
        parted = known.split(report.findings)
        report.baselined, report.gone = len(report.findings) - len(parted.new), parted.gone
        report.findings = parted.new
    _print(options, report)
    for problem in joined.problems:
        say(f"log: {problem}")
    if not joined.trace.requests:
        say("the logs hold no request that could be read")
        return FAILED
    return status(report, found, options)


def _baseline(options: Options, found: Found) -> Baseline | None:
    if options.update_baseline:
        if options.baseline is None and found.config.baseline is None:
            raise WrongUsage(
                "--update-baseline needs --baseline FILE (or `baseline` in the settings)."
            )
        return Baseline.of((), found.root)
    if options.baseline is not None:
        return Baseline.read(options.baseline, found.root)
    return None


def _update_baseline(options: Options, found: Found, report: Report) -> int:
    file = options.baseline or found.root / str(found.config.baseline)
    Baseline.of(report.findings, found.root).write(file)
    say(f"{plural(len(report.findings), 'finding')} written to {file}")
    return CLEAN


def _print(options: Options, report: Report) -> None:
    form = options.form or "full"
    style = Style(
        colour=stream.colour(options.output),
        width=stream.width(),
        blocks=stream.blocks(options.output),
        redact=options.redact,
    )
    if not report.files:
        say("no files to lint were found")
    if options.statistics:
        _emit(options, statistics_text(report, as_json=form in ("json", "jsonl")))
    elif options.quiet and form in ("full", "concise"):
        from agentkv.lint.output.concise import line
        from agentkv.lint.output.full import block

        rows = [
            line(f, style) if form == "concise" else "\n".join(block(f, style)) + "\n"
            for f in report.findings
        ]
        _emit(options, "".join(row + "\n" for row in rows))
    else:
        _emit(options, render(report, form, style))
        if form not in ("full", "concise", "markdown", "github") and not options.quiet:
            say(summary(report))
            for file in report.skipped[:20]:
                say(f"skipped {file.path}: {file.skipped}")
        if form != "full":
            for file in report.files:
                for note in file.notes:
                    say(f"note {file.path}: {note}")


# -- fixes -----------------------------------------------------------------------------------------


def _repair(
    options: Options,
    found: Found,
    report: Report,
    stdin: Stdin | None,
    look: Callable[[], Report],
) -> int:
    files = [Path(f.path) for f in report.files]
    config = found.config
    project = Project(found.root, files, stability=config.stability, sinks=config.sinks)
    repair = Repair(
        Lint.of(config, project), unsafe=options.unsafe_fixes, format=options.input_format
    )
    diffs, applied, changed = [], {}, 0
    kept = stdin.text if stdin is not None else None
    for path, findings in by_path(report.findings):
        if stdin is not None and path == stdin.name:
            done = repair.source(Source(path, stdin.text), findings)
            kept = done.after.text
        else:
            read = repair.file(Path(path), findings)
            if read is None:
                continue
            done = read
        for f in done.refused:
            why = "refused" if options.redact else f.fix.refused if f.fix is not None else ""
            say(f"not fixed: {f.path}:{f.line}:{f.column} {f.code} {f.name}: {why}")
        if done.before.text == done.after.text:
            continue
        changed += 1
        applied[path] = done.applied
        if options.diff:
            diffs.append(done.diff())
        elif stdin is None:
            done.write()
    total = sum(applied.values())
    if options.diff:
        _emit(options, "".join(diffs))
        say(f"{total} would be fixed in {plural(changed, 'file')}")
        return FINDINGS if changed and not options.exit_zero else CLEAN
    if stdin is not None:
        # As other tools do: the fixed text is the output, what is left goes to stderr.
        stream.write(kept or "", for_people=False)
        stdin = Stdin(kept or "", stdin.name)
        left = lint_paths([], config, root=found.root, stdin=stdin, format=options.input_format)
        say(summary(left))
        return CLEAN if options.fix_only else status(left, found, options)
    say(f"{total} fixed in {plural(changed, 'file')}")
    if options.fix_only:
        return CLEAN
    left = look() if changed else report
    left.fixed = applied
    _print(options, left)
    return status(left, found, options)


# -- other things to print -------------------------------------------------------------------------


def _files_text(found: Found, paths: list[Path], stdin: Stdin | None, options: Options) -> str:
    config = found.config
    if stdin is not None:
        return stdin.name + "\n"
    files = discover(
        paths,
        found.root,
        exclude=config.exclude,
        include=config.include,
        as_found=options.force_exclude,
    )
    return "".join(f"{f.path}\n" for f in files)


def _settings_text(found: Found) -> str:
    import msgspec

    value = {
        "schema": 1,
        "file": str(found.file) if found.file is not None else None,
        "root": str(found.root),
        "settings": msgspec.to_builtins(found.config),
    }
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _watch(options: Options, found: Found, paths: list[Path]) -> int:
    from agentkv.lint.watch import changes

    once = replace(options, watch=False)
    _once(once, found, paths, None)

    def files() -> list[Path]:
        config = found.config
        listed = discover(
            [p for p in paths if p.exists()],
            found.root,
            exclude=config.exclude,
            include=config.include,
        )
        return [f.path for f in listed]

    say(f"watching {plural(len(files()), 'file')}; Ctrl-C ends it")
    for changed in changes(files):
        say(f"changed: {', '.join(changed[:5])}")
        _once(once, found, [p for p in paths if p.exists()], None)
    return CLEAN


def _emit(options: Options, text: str) -> int:
    people = (options.form or "full") in ("full", "concise")
    try:
        stream.emit(text, options.output, for_people=people)
    except OSError as error:
        raise WrongUsage(f"{options.output}: cannot be written: {error.strerror}.") from None
    return CLEAN
