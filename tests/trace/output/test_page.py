"""The page: one file, nothing from elsewhere, nothing of a prompt as markup, and readable without
pictures."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest

from agentkv.trace.output import page
from agentkv.trace.output.page.heat import cells
from agentkv.trace.output.page.icicle import laid_out
from agentkv.trace.output.page.markup import el, embedded
from agentkv.trace.output.page.plot import area
from agentkv.trace.report import TraceReport, TreeNode

from . import sample

_VOID = {"meta", "link", "br", "hr", "rect", "path", "line", "col"}


class Read(HTMLParser):
    """Elements as (tag, attributes), the text, and what is wrong with the nesting."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.text: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.scripts.append(data)
        else:
            self.text.append(data)


def read(html: str) -> Read:
    parser = Read()
    parser.feed(html)
    parser.close()
    return parser


@pytest.fixture(scope="module")
def html() -> str:
    return page.write(sample.report(), names=["logs/<b>.jsonl"], version="1.2.3")


def test_every_element_is_closed(html: str) -> None:
    seen = read(html)
    assert seen.wrong == [] and seen.open == []


def test_a_prompt_is_text_and_never_an_element(html: str) -> None:
    seen = read(html)
    assert not [a for t, a in seen.elements if t == "img" or "onerror" in a]
    assert [t for t, _ in seen.elements].count("script") == 2
    assert "<script>alert(1)</script>" in "".join(seen.text)
    assert "logs/<b>.jsonl" in "".join(seen.text)
    assert not set("\x1b\u202e") & set(html)


def test_nothing_is_fetched_and_no_other_script_runs(html: str) -> None:
    seen = read(html)
    for _, attributes in seen.elements:
        for name in ("src", "href", "action", "data", "srcset", "poster", "formaction"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or value == "data:,"
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
    assert "@import" not in html and "url(" not in html
    policy = next(a["content"] or "" for _, a in seen.elements if a.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy and "http" not in policy
    style, data, script = seen.scripts
    for text in (style, script):
        assert f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy
    assert json.loads(data)["requests"] == 240


def test_the_numbers_in_the_page_are_the_report(html: str) -> None:
    data = json.loads(read(html).scripts[1])
    report = sample.report().to_dict()
    for part in (data, report):
        for bucket in part["timeline"]:
            bucket.pop("heat")
    assert data == json.loads(json.dumps(report))


@pytest.mark.parametrize(
    "text",
    ["</script>", "<!--<script>", "]]>", "&lt;", "\u2028", "\ud800", "<\\/script", "\U000e0041"],
)
def test_embedded_json_cannot_end_its_element(text: str) -> None:
    out = embedded({"a": text})
    assert not set("<>&\u2028") & set(out)
    out.encode("utf-8")
    assert json.loads(out) == {"a": text}


def test_attributes_and_text_are_escaped() -> None:
    assert el("p", '<&"', title='"><') == '<p title="&quot;&gt;&lt;">&lt;&amp;"</p>'
    assert el("p", el("b", "x"), None, 3, hidden=True, id=None) == "<p hidden><b>x</b>3</p>"


def test_pictures_have_names_and_tables(html: str) -> None:
    seen = read(html)
    pictures = [a for t, a in seen.elements if t == "svg"]
    named = [a for a in pictures if a.get("aria-hidden") == "true" or a.get("aria-label")]
    assert named == pictures
    assert [t for t, _ in seen.elements].count("figure") == 4
    assert "".join(seen.text).count("The same as a table") == 3
    assert [t for t, _ in seen.elements].count("caption") == [t for t, _ in seen.elements].count(
        "table"
    )
    ids = [a["id"] for _, a in seen.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    for tag, attributes in seen.elements:
        for name in ("aria-labelledby", "href"):
            value = attributes.get(name) or ""
            if name == "aria-labelledby" and value:
                assert value in ids
            if tag == "a":
                assert (attributes["href"] or "")[1:] in ids


def test_what_the_reader_needs_is_in_the_text(html: str) -> None:
    text = "".join(read(html).text)
    for said in (
        "41.2 %",
        "87.1 %",
        "91.3 %",
        "312,400",
        "agentkv rule KV101",
        "logs/requests.jsonl:84",
        "14:41:07.",
        "not JSON: line ends inside a string",
        "thread-3",
        "agentkv 1.2.3",
    ):
        assert said in text


def test_ten_thousand_requests_take_less_than_a_megabyte() -> None:
    report = sample.report(requests=10_000, columns=160)
    noisy = tuple(
        replace(b, heat=tuple((i * 7 + j * 13) % 101 / 100 for j in range(32)))
        for i, b in enumerate(report.timeline)
    )
    wide = TreeNode("", 0, 10_000, 0, 0, tuple(sample.tree() for _ in range(60)))
    html = page.write(replace(report, timeline=noisy, tree=wide))
    assert len(html.encode()) < 1_000_000


@pytest.mark.parametrize(
    "change",
    [
        {"requests": 0, "sessions": 0, "prompt_tokens": 0, "causes": (), "timeline": ()},
        {"timeline": (), "tree": None, "by_session": ()},
        {"causes": (), "problems": {}},
        {"rates": replace(sample.report().rates, fixed=None)},
        {"measured": type(sample.report().measured)()},
        {"timeline": tuple(replace(b, time=None, measured=None) for b in sample.buckets(9, 9))},
    ],
)
def test_reports_that_lack_something(change: dict[str, Any]) -> None:
    report: TraceReport = replace(sample.report(), **change)
    seen = read(page.write(report))
    assert seen.wrong == [] and seen.open == []
    text = "".join(seen.text)
    if not report.measured.requests:
        assert "does not say what a provider had cached" in text
    if not report.causes and report.requests:
        assert "Nothing was lost" in text


def test_the_area_between_two_lines() -> None:
    assert area([0, 0], [0.5, 1]) == "M0 1V.5H1V0H2V1H1V1H0Z"
    assert area([0.2], [0.2]) == ""


def test_heat_cells_cover_each_column_once() -> None:
    columns = sample.buckets(40, 240)
    covered: dict[tuple[int, int], int] = {}
    for level, path in enumerate(cells(columns, 32)):
        for x, y, height in re.findall(r"M(\d+) (\d+)h1v(\d+)h-1z", path):
            for row in range(int(y), int(y) + int(height)):
                assert (int(x), row) not in covered
                covered[int(x), row] = level
    for x, bucket in enumerate(columns):
        for y, share in enumerate(bucket.heat):
            assert ((x, y) in covered) == (share is not None)
            if share == 0:
                assert covered[x, y] == 0
            elif share is not None and share < 0.995:
                assert 1 <= covered[x, y] <= 6


def test_the_icicle_keeps_children_inside_their_parents() -> None:
    blocks = laid_out(sample.tree())
    assert blocks[0].parent == -1 and len(blocks) == 27
    for block in blocks:
        if block.parent < 0:
            continue
        parent = blocks[block.parent]
        assert block.start == parent.start + parent.node.tokens
        assert parent.top <= block.top
        assert block.top + block.node.requests <= parent.top + parent.node.requests
        assert block.level == parent.level + 1


def test_a_tree_that_is_too_large_keeps_its_largest_blocks_and_their_parents() -> None:
    leaves = tuple(TreeNode(f"leaf {i}", 1 + i, 1, 0, 1) for i in range(2000))
    root = TreeNode("root", 10, 2000, 10, 10, leaves)
    blocks = laid_out(root)
    assert len(blocks) == 600 and blocks[0].node is root
    assert min(b.node.tokens for b in blocks[1:]) == 2000 - 598
    assert all(b.parent == 0 for b in blocks[1:])
