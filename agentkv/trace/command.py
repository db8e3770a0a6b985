"""What `agentkv trace ...` and `agentkv explain` do with their options: one function a command.

Each gives the exit status: 0, or 1 when a line could not be read or a check failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from agentkv.trace.options import (
    FAILED,
    OK,
    Common,
    WrongUsage,
    new_file,
    share,
    unreadable,
)
from agentkv.trace.output.console import console, say, write, write_json
from agentkv.trace.readers import LogError, Problems
from agentkv.trace.report import TraceReport

P = ParamSpec("P")


def _told(run: Callable[P, int]) -> Callable[P, int]:
    """A log or an output file that cannot be opened is the user's to mend, not a traceback."""

    @wraps(run)
    def outer(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return run(*args, **kwargs)
        except LogError as error:
            raise unreadable(error) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            raise WrongUsage(f"{error.filename or 'file'}: {error.strerror or error}.") from None

    return outer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    html: Path | None = None
    json: bool = False
    output: Path | None = None
    redact: bool = False
    top: int = 5
    fail_under: str | None = None
    fixed: bool = True


@_told
def report(common: Common, options: ReportOptions) -> int:
    """The report of some logs, as text, JSON or a page."""
    least = share(options.fail_under) if options.fail_under is not None else None
    found, problems, names = analysed(common, fixed=options.fixed)
    if options.redact:
        from agentkv.trace.output.redacted import without_text

        found = without_text(found)
    to_stdout = options.html is not None and str(options.html) == "-"
    if options.html is not None:
        from agentkv import __version__
        from agentkv.trace.output import page

        html = page.write(found, names=names, version=__version__)
        write(html, None if to_stdout else options.html)
        if not to_stdout:
            say(f"written to {options.html}")
    if options.json:
        write_json(found.to_dict(), options.output)
    elif not to_stdout:
        from agentkv.trace.output import terminal

        terminal.write(found, console(), names=names, top=options.top)
    status = _account(problems)
    if least is not None:
        now = found.rates.now if found.requests else None
        if now is None or now < least:
            said = "unknown, since no request was read" if now is None else f"{now:.1%}"
            say(f"failed: the hit rate is {said}; {least:.1%} was asked for")
            status = FAILED
    return status


def analysed(common: Common, *, fixed: bool = True) -> tuple[TraceReport, Problems, list[str]]:
    """The report, the reader's account, and the names of the logs."""
    from agentkv.trace.analyse import analyse

    renderer, cache = common.renderer(), common.cache()
    with common.open() as logs:
        found = analyse(logs, renderer=renderer, cache=cache, problems=logs.problems, fixed=fixed)
        found = replace(found, notes=[*found.notes, *logs.notes()])
        if common.session is not None and not found.requests and not logs.problems.bad:
            raise WrongUsage(_no_session(common.session))
        return found, logs.problems, logs.names


def _no_session(name: str) -> str:
    return f"no session of the log is called {name}; `agentkv trace show` lists some."


def _account(problems: Problems) -> int:
    if not problems.bad:
        return OK
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in problems.counts.items())
    say(f"not read: {kinds}; first {problems.first[0]}")
    return FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    shares: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    json: bool = False
    output: Path | None = None


@_told
def replay(common: Common, options: ReplayOptions) -> int:
    """Hit rates by the size of the cache, policies beside each other."""
    from agentkv.trace.output import replay as output
    from agentkv.trace.replay import curve

    common.sized()
    common.cache()
    size = common.size()
    shares = [share(s) for s in options.shares]
    if not shares and size is None:
        shares = [0.01, 0.05, 0.25]
    with common.open() as logs:
        try:
            found = curve(
                logs,
                common.renderer(),
                target=common.target,
                shares=shares,
                sizes=() if size is None else (size,),
                policies=options.policies or ("lru", "hot"),
            )
        except ValueError as error:
            raise WrongUsage(str(error)) from None
        if options.json:
            write_json(found.to_dict(), options.output)
        else:
            output.write(found, console())
        return _account(logs.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOptions:
    fixes: tuple[str, ...] = ()
    output: Path | None = None
    json: bool = False


@_told
def what_if(common: Common, options: WhatIfOptions) -> int:
    """The rate after each mending; with `output`, the mended copy as a new file."""
    from agentkv.trace.analyse import analyse
    from agentkv.trace.fixes import MENDINGS, fix_calls
    from agentkv.trace.output import what_if as output
    from agentkv.trace.whatif import what_if as rates
    from agentkv.trace.whatif import write_calls

    unknown = [f for f in options.fixes if f not in MENDINGS]
    if unknown:
        raise WrongUsage(f"no mending is called {unknown[0]}; there are: {', '.join(MENDINGS)}.")
    if options.output is not None:
        new_file(options.output, common.logs)
    renderer, cache = common.renderer(), common.cache()
    with common.open() as logs:
        seen = analyse(logs, renderer=renderer, cache=cache, problems=logs.problems, fixed=False)
        fixes = list(options.fixes) or list(
            dict.fromkeys(c.fix for c in seen.causes if c.fix is not None)
        )
        rows = rates(logs, fixes, renderer, cache)
        ceiling = seen.rates.ceiling if seen.requests else None
        if options.json:
            write_json(output.as_dict(rows, ceiling))
        else:
            output.write(rows, ceiling, console())
        if options.output is not None:
            written = write_calls(fix_calls(logs, fixes), options.output, common.logs)
            say(f"{written:,} calls written to {options.output}")
        return _account(logs.problems)


@_told
def show(common: Common, *, json: bool = False, redact: bool = False) -> int:
    """One session, call by call."""
    from agentkv.trace.output import show as output
    from agentkv.trace.show import NoSuchSession
    from agentkv.trace.show import show as found

    # The whole log is replayed, since other sessions fill the cache too; so it is not cut here.
    whole = replace(common, session=None)
    with whole.open() as logs:
        try:
            session = found(logs, common.renderer(), common.cache(), session=common.session)
        except NoSuchSession as error:
            if common.session is None:
                say(str(error))
                _account(logs.problems)
                return FAILED
            raise WrongUsage(str(error)) from None
        if redact:
            from agentkv.trace.output.redacted import session_without_text

            session = session_without_text(session)
        if json:
            write_json(session.to_dict())
        else:
            output.write(session, console())
        return _account(logs.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    tolerance: str | None = None
    json: bool = False
    redact: bool = False


@_told
def diff(common: Common, options: DiffOptions) -> int:
    """Two logs, the earlier one first; 1 when the second is worse."""
    from agentkv.trace.analyse import analyse
    from agentkv.trace.diff import WORSE, compare_logs
    from agentkv.trace.layouts import layout_of
    from agentkv.trace.output import diff as output

    tolerance = WORSE if options.tolerance is None else share(options.tolerance)
    renderer, cache = common.renderer(), common.cache()
    reports, layouts, status = [], [], OK
    for path in common.logs:
        with replace(common, logs=(path,)).open() as logs:
            found = analyse(
                logs, renderer=renderer, cache=cache, problems=logs.problems, fixed=False
            )
            layouts.append(layout_of(logs(), renderer))
            if options.redact:
                from agentkv.trace.output.redacted import without_text

                found = without_text(found)
            reports.append(found)
            status = max(status, _account(logs.problems))
    before, after = reports
    pair = (layouts[0], layouts[1])
    seen = compare_logs(before, after, pair, tolerance=tolerance)
    if options.redact:
        from agentkv.trace.output.redacted import diff_without_text

        seen = diff_without_text(seen)
    if options.json:
        write_json(seen.to_dict())
    else:
        output.write(seen, (common.logs[0], common.logs[1]), console())
    return FAILED if seen.worse else status


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactOptions:
    output: Path | None = None
    key: str | None = None


@_told
def redact(common: Common, options: RedactOptions) -> int:
    """A copy of a log without its texts: to a new file, or to standard output."""
    from agentkv.trace.redact import Redactor, redacted

    key = options.key.encode() if options.key else None
    if key is not None and len(key) < 16:
        raise WrongUsage("the key of --key-env is too short: give 16 characters or more.")
    path = new_file(options.output, common.logs) if options.output is not None else None
    with common.open() as logs:
        lines = redacted(logs(), Redactor(key))
        if path is None:
            for line in lines:
                write(line.rstrip("\n") + "\n")
        else:
            count = 0
            with path.open("x", encoding="utf-8", errors="backslashreplace") as out:
                for line in lines:
                    out.write(line.rstrip("\n") + "\n")
                    count += 1
            say(f"{count:,} calls written to {path}")
        return _account(logs.problems)
