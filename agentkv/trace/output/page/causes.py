"""The table of causes: what was lost, to what, since when, where to look, and what to do."""

from __future__ import annotations

from collections import Counter

from agentkv.trace.output import words
from agentkv.trace.output.difference import difference, visible, visible_marked
from agentkv.trace.output.page.markup import Markup, el, join
from agentkv.trace.output.page.section import Section, bar, scroll, section
from agentkv.trace.report import Bucket, CauseRow, Example, TraceReport


def causes(report: TraceReport) -> Section:
    title = "What the loss is due to"
    if not report.causes:
        if not report.requests:
            return section("causes", title, "The log holds no request that could be read.")
        more = words.why_unserved(report)
        said = words.nothing_lost(report) + (f" {more}" if more else "")
        return section("causes", title, said)
    lost = sum(c.tokens_lost for c in report.causes)
    lead = (
        f"{words.plural(lost, 'token')} that an earlier prompt also held were computed again. Where "
        "several causes stand in front of the same tokens, these are shared out: the rows add up."
    )
    since = [_since(report, i) for i in range(len(report.causes))]
    drawn = any(s is not None for s in since)
    heads = [("Cause", ""), ("Where", ""), ("Requests", "n"), ("Tokens lost", "n"), ("Share", "n")]
    if drawn:
        heads.append(("Over time", "since"))
    body: list[Markup] = []
    for i, (cause, line) in enumerate(zip(report.causes, since, strict=True)):
        body += _rows(i + 1, cause, line, len(heads), drawn)
    table = el(
        "table",
        el("caption", "Causes, most tokens lost first", class_="hidden"),
        el("thead", el("tr", (el("th", h, scope="col", class_=c or None) for h, c in heads))),
        el("tbody", body),
        class_="causes",
    )
    more = words.why_unserved(report)
    after = el("p", more, class_="lead") if more else join()
    return section("causes", title, lead, scroll("Causes", table), after)


def _rows(n: int, c: CauseRow, line: Markup | None, columns: int, drawn: bool) -> list[Markup]:
    what = words.reason(c.reason)
    if c.value:
        what += f" ({words.value(c.value)})"
    name = join(el("b", c.rule, class_="rule") if c.rule else None, " " if c.rule else None, c.name)
    head = el(
        "tr",
        el(
            "th",
            el("span", name, class_="name"),
            el("small", what) if what != c.name else None,
            scope="row",
        ),
        el("td", el("code", c.segment)),
        el("td", words.count(c.count), class_="n"),
        el("td", words.count(c.tokens_lost), class_="n"),
        el(
            "td",
            words.percent(c.share),
            bar([("lost", c.share)], f"{words.percent(c.share)} of the loss"),
            class_="n share",
        ),
        el("td", line, class_="since") if drawn else None,
        id=f"cause-{n}",
        class_="cause",
    )
    more = el(
        "tr",
        el(
            "td",
            el(
                "details",
                el(
                    "summary",
                    "What to do, and an example",
                    el("span", f" of {c.name}", class_="hidden"),
                ),
                _more(c),
                open=n == 1,
            ),
            colspan=columns,
        ),
        class_="more",
    )
    return [head, more]


def _more(c: CauseRow) -> Markup:
    said = []
    if c.constant:
        said.append(f"The value stays the same within a {c.constant}.")
    if c.variants > 1:
        said.append(f"It had {words.count(c.variants)} variants.")
    page = None
    if c.rule:
        page = el("p", "About this rule: ", el("code", f"agentkv rule {c.rule}"), class_="soft")
    return join(
        el("p", c.advice, class_="advice") if c.advice else None,
        el("p", " ".join(said), class_="soft") if said else None,
        _example(c.worst, "The worst call" if c.worst != c.first else "The only example"),
        _example(c.first, "The first call") if c.worst != c.first else None,
        page,
    )


def _example(e: Example, title: str) -> Markup:
    other = e.compared_with
    place = join(
        el("b", title),
        ", ",
        el("code", f"{e.where.file}:{e.where.line}"),
        f", lost {words.plural(e.tokens_lost, 'token')}. It left the earlier prompt",
        join(" (", el("code", f"{other.file}:{other.line}"), ")") if other is not None else None,
        f" at token {words.count(e.at)}, in ",
        el("code", e.segment),
        ".",
    )
    return el("div", el("p", place), comparison(e.before, e.was, e.now), class_="example")


def comparison(before: str | None, was: str | None, now: str | None) -> Markup | None:
    """The two texts below each other, what differs marked; None where the log holds no text."""
    if was is None and now is None:
        return None
    d = difference(was or "", now or "")
    same = _shown((before or "") + d.before)
    after = _shown(d.after)
    rows = []
    for name, tag, middle in (("was", "del", d.was), ("now", "ins", d.now)):
        mark = el(
            tag, visible_marked(middle) if middle else "nothing", class_=None if middle else "none"
        )
        rows.append(el("div", el("dt", name), el("dd", same, mark, after)))
    return el("dl", rows, class_="compare")


def _shown(text: str) -> str:
    return "\n".join(visible(line) for line in text.split("\n"))


def _since(report: TraceReport, index: int) -> Markup | None:
    """Tokens lost to a cause along the log. By the cause where the report says so; by the reason
    where only one cause has it; else nothing, for it would be another cause's curve too."""
    cause = report.causes[index]
    values = [_lost_to(b, index) for b in report.timeline]
    if all(v is None for v in values):
        if Counter(c.reason for c in report.causes)[cause.reason] > 1:
            return None
        values = [b.reasons.get(cause.reason, 0) for b in report.timeline]
    lost = [v or 0 for v in values]
    most = max(lost, default=0)
    if len(lost) < 2 or not most:
        return None
    steps = "".join(f"V{1 - v / most:.3f}H{i + 1}".replace("0.", ".") for i, v in enumerate(lost))
    peak = report.timeline[lost.index(most)]
    said = f"Most between requests {peak.start + 1:,} and {peak.end:,}"
    if when := words.moment(peak.time):
        said += f", from {when}"
    return el(
        "svg",
        el("path", d=f"M0 1{steps}V1Z", class_="lost"),
        class_="spark",
        viewBox=f"0 0 {len(lost)} 1",
        preserveAspectRatio="none",
        role="img",
        aria_label=said,
    )


def _lost_to(bucket: Bucket, index: int) -> int | None:
    found = getattr(bucket, "causes", None)
    return None if not found else int(found.get(index, 0))
