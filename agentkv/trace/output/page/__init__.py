"""A report as one HTML page that needs nothing else: no other file, no other host, no script to be
read, printed or searched. The pictures are drawn here; the script only adds a cross-hair, zoom and
sorting, and the policy in the page's head lets no other script run and nothing be fetched."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files as resources

from agentkv.trace.output import words
from agentkv.trace.output.page.about import about
from agentkv.trace.output.page.causes import causes
from agentkv.trace.output.page.head import header
from agentkv.trace.output.page.heat import heat
from agentkv.trace.output.page.icicle import icicle
from agentkv.trace.output.page.markup import Markup, el, embedded, join
from agentkv.trace.output.page.sessions import sessions
from agentkv.trace.output.page.timeline import timeline
from agentkv.trace.report import TraceReport


def write(report: TraceReport, *, names: Sequence[str] = (), version: str = "") -> str:
    """The page. `names`: of the logs. `version`: of the program, for the footer."""
    style, script = _resource("page.css"), _resource("page.js")
    title = words.files(names)
    sections = [
        section
        for section in (
            causes(report),
            timeline(report),
            heat(report),
            icicle(report),
            sessions(report),
            about(report),
        )
        if section is not None
    ]
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = el(
        "html",
        el(
            "head",
            el("meta", charset="utf-8"),
            el("meta", http_equiv="Content-Security-Policy", content=policy),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="color-scheme", content="light dark"),
            el("meta", name="referrer", content="no-referrer"),
            el("meta", name="robots", content="noindex"),
            el("title", f"{title}: trace report"),
            # Without it a browser asks the page's own host for an icon.
            el("link", rel="icon", href="data:,"),
            Markup(f"<style>{style}</style>"),
        ),
        el(
            "body",
            el("a", "Skip to the causes", href="#causes", class_="skip"),
            header(report, title, [(s.id, s.title) for s in sections]),
            el("main", (s.body for s in sections)),
            el("footer", _footer(version)),
            # Not run by a browser: for the script below, and for whoever wants the numbers.
            Markup(f'<script type="application/json" id="report">{_data(report)}</script>'),
            Markup(f"<script>{script}</script>"),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _footer(version: str) -> Markup:
    made = f"agentkv {version}".strip()
    return join(
        el(
            "p", f"{made}, trace report. This page is one file and asks no other host for anything."
        ),
        el("p", el("button", "Save the numbers as JSON", type="button", id="save", hidden=True)),
    )


def _data(report: TraceReport) -> Markup:
    value = report.to_dict()
    for bucket in value["timeline"]:
        # The picture is drawn already, and 32 numbers a column are most of the page.
        bucket["heat"] = [None if h is None else round(h, 2) for h in bucket["heat"]]
    return embedded(value)


def _resource(name: str) -> str:
    return resources("agentkv.trace.output.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
