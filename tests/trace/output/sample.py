"""A report with all that a report can hold, for the outputs' tests. The texts are hostile: nothing
of a prompt may act as markup, as a script or as a terminal's control sequence."""

from __future__ import annotations

import math

from agentkv.trace.call import Where
from agentkv.trace.report import (
    Bucket,
    CauseRow,
    Example,
    Measured,
    Rates,
    SessionRow,
    TraceReport,
    TreeNode,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e&amp;"
START = 1_790_000_000.0


def example(
    line: int,
    lost: int,
    was: str | None,
    now: str | None,
    *,
    segment: str = "system",
    before: str | None = "You help customers of a shop. It is ",
) -> Example:
    return Example(
        where=Where("logs/requests.jsonl", line),
        request=line - 1,
        session=f"thread-{line % 12}",
        tokens_lost=lost,
        at=11,
        segment=segment,
        was=was,
        now=now,
        before=before,
        compared_with=Where("logs/requests.jsonl", max(1, line - 1)),
        time=START + 30.0 * line,
    )


def causes() -> tuple[CauseRow, ...]:
    clock = CauseRow(
        reason="text_changed",
        rule="KV101",
        name="timestamp-in-prefix",
        segment="system",
        count=231,
        tokens_lost=312_400,
        share=0.768,
        first=example(2, 1290, "2026-09-21 14:02:11. Be kind.", "2026-09-21 14:02:19. Be kind."),
        worst=example(84, 4120, "2026-09-21 14:40:02. Be kind.", "2026-09-21 14:41:07. Be kind."),
        advice="Put the time at the end of the last user message, or leave it out.",
        value="clock",
        variants=230,
        fix="volatile_last",
    )
    order = CauseRow(
        reason="tool_order",
        rule="KV201",
        name="unsorted-tools",
        segment="tools",
        count=40,
        tokens_lost=81_000,
        share=0.199,
        first=example(
            9, 2025, '{"name":"search"', '{"name":"book"', segment="tools", before='{"tools":['
        ),
        worst=example(
            9, 2025, '{"name":"search"', '{"name":"book"', segment="tools", before='{"tools":['
        ),
        advice="Sort the tools by name, once, where the list is made.",
        constant="session",
        variants=3,
        fix="tool_order",
    )
    hostile = CauseRow(
        reason="history_edited",
        rule=None,
        name="history was edited",
        segment="messages",
        count=3,
        tokens_lost=13_400,
        share=0.033,
        first=example(30, 4466, HOSTILE, HOSTILE + " twice", segment="messages[2]", before="x\n"),
        worst=example(31, 4467, None, None, segment="messages[2]", before=None),
        advice="Append; never rewrite what was sent.",
    )
    return clock, order, hostile


def buckets(n: int, requests: int) -> tuple[Bucket, ...]:
    out = []
    for i in range(n):
        start, end = i * requests // n, (i + 1) * requests // n
        prompt = (end - start) * (2600 + int(900 * math.sin(i / 5)))
        bad = i > n * 0.55
        lost = int(prompt * (0.52 if bad else 0.06))
        cached = int(prompt * (0.33 if bad else 0.8))
        deep = 20 + int(10 * math.sin(i / 9))
        heat = tuple(
            None if row > deep else (0.95 if row < 2 else 0.3 if bad else max(0.0, 0.97 - row / 60))
            for row in range(32)
        )
        out.append(
            Bucket(
                start=start,
                end=end,
                time=START + 600.0 * i,
                prompt=prompt,
                cached=cached,
                lost=lost,
                measured=int(cached * 0.93),
                heat=heat,
                reasons={"text_changed": lost} if bad else {"tool_order": lost},
            )
        )
    return tuple(out)


def tree() -> TreeNode:
    def leaf(label: str, tokens: int, requests: int) -> TreeNode:
        return TreeNode(label, tokens, requests, int(tokens * (requests - 1) * 0.8), tokens)

    sessions = tuple(
        TreeNode(
            f"messages[0] Where is my order {i}?",
            240,
            24 - i,
            240 * (23 - i),
            240,
            tuple(leaf(f"messages[{m}] turn {m}", 300 + 90 * m, 8 - m) for m in range(1, 4)),
        )
        for i in range(6)
    )
    rules = TreeNode("tools, system You help customers", 1280, 130, 1280 * 124, 1280 * 6, sessions)
    bad = TreeNode(
        f"system {HOSTILE}", 900, 114, 12_000, 900 * 100, (leaf("messages[0] Hi", 90, 9),)
    )
    return TreeNode("", 0, 240, 0, 0, (rules, bad))


def report(*, requests: int = 240, columns: int = 96) -> TraceReport:
    """240 requests whose hit rate falls a little after half of the time."""
    return TraceReport(
        requests=requests,
        sessions=12,
        prompt_tokens=812_340,
        rates=Rates(0.412, 0.871, 0.913, 0.36, 0.052, 0.398, 0.866, 0.905),
        causes=causes(),
        tokenizer="estimate",
        exact=False,
        cache="agentkv, unlimited",
        measured=Measured(230, 790_000, 314_000, 1200),
        timeline=buckets(columns, requests),
        by_session=tuple(
            SessionRow(f"thread-{i}", i % 3 > 0, 20, 67_000, 27_000 + i, 33_000 - i * 900, i)
            for i in range(12)
        ),
        tree=tree(),
        failed=2,
        first_calls=12,
        appended=205,
        evicted_tokens=0,
        problems={"not JSON": 2},
        problem_lines=["logs/requests.jsonl:77: not JSON: line ends inside a string"],
        notes=["Tokens are estimated; --tokenizer PATH counts them."],
        models={"gpt-4o-2024-08-06": requests},
        formats={"openai chat": requests},
    )
