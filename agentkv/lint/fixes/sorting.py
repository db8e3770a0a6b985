"""`sorted(...)` and `sort_keys=True`, put where an order is not certain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from agentkv.lint.finding import Finding, Fix
from agentkv.lint.fixes.strings import Places, places_of, tree_of
from agentkv.lint.source import Edit, Slice, Source
from agentkv.lint.template import Document, Hole

_LISTINGS = frozenset({"listdir", "glob", "iglob", "rglob", "iterdir", "scandir"})
_SCHEMA = re.compile(
    r"schema|properties|response_format|\btools?\b|function|parameters|json_mode", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression and how its nodes are found in the file."""

    tree: ast.expr
    places: Places
    base: int

    def of(self, node: ast.AST) -> Slice:
        start, end = self.places.of(node)
        return Slice(self.base + start, self.base + end)


def set_iteration(document: Document, finding: Finding, source: Source) -> Fix | None:
    """Sort what is joined or looped over, where it is a set."""
    if document.format != "python":
        return None
    for expression in _expressions(finding, source):
        found = [(node, texts) for node, texts in _iterated(expression.tree) if not _ordered(node)]
        sets = [(n, t) for n, t in found if _is_set(n, source)]
        chosen = sets or (found if len(found) == 1 and "set_order" in _traits(finding) else [])
        if not chosen:
            continue
        edits: list[Edit] = []
        for node, texts in chosen:
            where = expression.of(node)
            key = "" if texts or _all_text(node) else ", key=str"
            edits += _wrap(where, f"sorted({_open(node)}", f"{_close(node)}{key})")
        return Fix(
            applicability="safe",
            message="Sort the set",
            edits=tuple(edits),
            proof=("a set has no order that could be meant",),
        )
    return None


def listing(document: Document, finding: Finding, source: Source) -> Fix | None:
    """Sort a directory listing where it is taken."""
    if document.format != "python":
        return None
    for expression in _expressions(finding, source):
        edits: list[Edit] = []
        sorted_ = {
            id(a)
            for n in ast.walk(expression.tree)
            if _ordered(n) and isinstance(n, ast.Call)
            for a in n.args
        }
        for node in ast.walk(expression.tree):
            if not isinstance(node, ast.Call) or id(node) in sorted_:
                continue
            name = _called(node)
            if name not in _LISTINGS:
                continue
            key = ", key=lambda entry: entry.name" if name == "scandir" else ""
            edits += _wrap(expression.of(node), "sorted(", f"{key})")
        if edits:
            return Fix(
                applicability="safe",
                message="Sort the listing",
                edits=tuple(edits),
                proof=("a listing has no order that could be meant",),
            )
    return None


def json_keys(document: Document, finding: Finding, source: Source) -> Fix | None:
    """`sort_keys=True` for data; never for a schema."""
    if document.format != "python":
        return None
    if _traits(finding) & {"schema", "schema_order", "tools"}:
        return _refused("the order of a schema's keys is the order in which the answer is written.")
    for expression in _expressions(finding, source):
        for node in ast.walk(expression.tree):
            if not isinstance(node, ast.Call) or _called(node) != "dumps" or not node.args:
                continue
            written = source[expression.of(node)]
            if _SCHEMA.search(written):
                return _refused(
                    "it looks like a schema or a list of tools, whose order of keys means something."
                )
            if any(k.arg is None for k in node.keywords) or any(
                isinstance(a, ast.Starred) for a in node.args
            ):
                return _refused("its arguments are not all written out.")
            given = next((k for k in node.keywords if k.arg == "sort_keys"), None)
            if given is not None:
                if isinstance(given.value, ast.Constant) and given.value.value is False:
                    edit = Edit(expression.of(given.value), "True")
                else:
                    continue
            else:
                last = max(
                    expression.of(x.value if isinstance(x, ast.keyword) else x).end
                    for x in (*node.args, *node.keywords)
                )
                last = _past_brackets(source, last, expression.of(node).end)
                edit = Edit(Slice(last, last), ", sort_keys=True")
            return Fix(
                applicability="safe",
                message="Dump it with sort_keys=True",
                edits=(edit,),
                proof=("the keys and values are the same",),
            )
    return None


def ties(document: Document, finding: Finding, source: Source) -> Fix | None:
    """A second key behind a count: the counted thing itself, as text."""
    if document.format != "python":
        return None
    for expression in _expressions(finding, source):
        edits: list[Edit] = []
        for node in ast.walk(expression.tree):
            if isinstance(node, ast.Call):
                edits += _most_common(node, expression) or _by_count(node, expression)
        if edits:
            return Fix(
                applicability="safe",
                message="Sort what has the same count by itself",
                edits=tuple(edits),
                proof=("the same elements; only the order of equal counts is another",),
            )
    return _refused("what makes an element unique is not seen here.")


def _most_common(node: ast.Call, expression: Expression) -> list[Edit]:
    """`counts.most_common(n)` as a sort by count and element."""
    func = node.func
    if not (isinstance(func, ast.Attribute) and func.attr == "most_common") or node.keywords:
        return []
    if len(node.args) > 1 or any(isinstance(a, ast.Starred) for a in node.args):
        return []
    whole, base = expression.of(node), expression.of(func.value)
    many = [expression.of(a) for a in node.args]
    key = ".items(), key=lambda pair: (-pair[1], str(pair[0])))"
    edits = [Edit(Slice(whole.start, whole.start), "sorted(")]
    if not many or _is_none(node.args[0]):
        return [*edits, Edit(Slice(base.end, whole.end), key)]
    return [
        *edits,
        Edit(Slice(base.end, many[0].start), f"{key}[:"),
        Edit(Slice(many[0].end, whole.end), "]"),
    ]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _by_count(node: ast.Call, expression: Expression) -> list[Edit]:
    """`sorted(counts.items(), key=lambda pair: pair[1])`, with the element behind the count."""
    key = next((k.value for k in node.keywords if k.arg == "key"), None)
    if _called(node) != "sorted" or len(node.args) != 1 or not isinstance(key, ast.Lambda):
        return []
    items = node.args[0]
    if not (isinstance(items, ast.Call) and _called(items) == "items" and not items.args):
        return []
    if len(key.args.args) != 1 or isinstance(key.body, ast.Tuple):
        return []
    name = key.args.args[0].arg
    if f"{name}[1]" not in ast.unparse(key.body) or f"{name}[0]" in ast.unparse(key.body):
        return []
    return _wrap(expression.of(key.body), "(", f", str({name}[0]))")


_SERVED = ("list_tools", "get_tools")
"""What gives objects that have a `name`, in MCP's clients and in LangChain's."""
_ANY_TOOL = 'lambda tool: getattr(tool, "name", "") or getattr(tool, "__name__", "") or str(tool)'
"""LangChain takes objects of its own, plain functions, classes and dicts: only the first have a `name`."""


def tools(document: Document, finding: Finding, source: Source) -> Fix | None:
    """Sort tools by name where they are sent."""
    request = finding.request
    if document.format != "python" or request is None or request.tools is None:
        return None
    where = request.tools.slice
    call = source[request.slice]
    if any(w in text for w in _SERVED for text in (request.tools.detail, source[where])):
        key = "lambda tool: tool.name"
    elif request.api == "langchain":
        key = _ANY_TOOL
    elif ".responses." in call:
        key = 'lambda tool: tool.get("name") or tool["type"]'  # those built in have no name
    elif request.api == "anthropic":
        key = 'lambda tool: tool["name"]'
    elif request.api in ("openai", "litellm") or ".chat.completions." in call:
        key = 'lambda tool: tool["function"]["name"]'
    else:
        return _refused("it is not known here where a tool of this kind keeps its name.")
    node = _node(source, where)
    if node is None:
        return None
    start, end = places_of(source.text).of(node)
    if _ordered(node):
        return None
    head, foot = _open(node), _close(node)
    return Fix(
        applicability="safe",
        message="Sort the tools by name",
        edits=tuple(_wrap(Slice(start, end), f"sorted({head}", f"{foot}, key={key})")),
        proof=("the same tools, by name",),
    )


# -- finding expressions --------------------------------------------------------------------------


def _expressions(finding: Finding, source: Source) -> Iterator[Expression]:
    """The slot's own expression, the one that it was assigned from, and where it was made."""
    yield from _parsed(source, finding.slice)
    hole = _hole(finding)
    if hole is None:
        return
    if hole.slice is not None and hole.slice != finding.slice:
        yield from _parsed(source, hole.slice)
    if hole.defined_at is not None:
        yield from _parsed(source, hole.defined_at)
    try:
        tree = tree_of(source.text)
    except (SyntaxError, ValueError):
        return
    names = {hole.name, *hole.reads}
    places = places_of(source.text)
    given = [
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign)
        and len(n.targets) == 1
        and isinstance(n.targets[0], ast.Name)
        and n.targets[0].id in names
    ]
    if len(given) == 1:
        yield Expression(given[0], places, 0)


def _parsed(source: Source, where: Slice) -> Iterator[Expression]:
    text, base = source[where], where.start
    if text.startswith("{") and text.endswith("}"):
        text, base = text[1:-1], base + 1
        for _ in range(4):
            made = _parse(text)
            if made is not None:
                yield Expression(made, Places(f"({text})"), base - 1)
                return
            cut = max(text.rfind(":"), text.rfind("!"))
            if cut <= 0:
                break
            text = text[:cut]
        return
    made = _parse(text)
    if made is not None:
        yield Expression(made, Places(f"({text})"), base - 1)
        return
    node = _node(source, where)
    if node is not None:
        yield Expression(node, places_of(source.text), 0)


def _parse(text: str) -> ast.expr | None:
    try:
        return ast.parse(f"({text})", mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _node(source: Source, where: Slice) -> ast.expr | None:
    """The largest expression inside a slice, or the smallest around it."""
    try:
        tree = tree_of(source.text)
    except (SyntaxError, ValueError):
        return None
    places = places_of(source.text)
    inside: tuple[int, ast.expr] | None = None
    around: tuple[int, ast.expr] | None = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr):
            continue
        start, end = places.of(node)
        size = end - start
        if where.start <= start and end <= where.end:
            if inside is None or size > inside[0]:
                inside = size, node
        elif start <= where.start and where.end <= end and (around is None or size < around[0]):
            around = size, node
    found = inside or around
    return found[1] if found else None


def _hole(finding: Finding) -> Hole | None:
    if finding.template is None or finding.at is None:
        return None
    pieces = finding.template.parts[finding.at[0]].pieces
    found = pieces[finding.at[1]] if finding.at[1] < len(pieces) else None
    if not isinstance(found, Hole):
        return None
    stack = [found]
    while stack:
        hole = stack.pop()
        if hole.slice == finding.slice:
            return hole
        stack += [h for h in hole.inner if isinstance(h, Hole)]
    return found


def _traits(finding: Finding) -> frozenset[str]:
    hole = _hole(finding)
    return frozenset(hole.traits) if hole is not None else frozenset()


# -- what is sorted -------------------------------------------------------------------------------


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _ordered(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _called(node) in ("sorted", "sort")


def _iterated(tree: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    """What is walked through, and whether its elements must be texts."""
    seen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            for part in node.generators:
                if id(part.iter) not in seen:
                    seen.add(id(part.iter))
                    yield part.iter, False
        elif isinstance(node, ast.Call) and len(node.args) == 1:
            joins = isinstance(node.func, ast.Attribute) and node.func.attr == "join"
            argument = node.args[0]
            if isinstance(argument, (ast.GeneratorExp, ast.ListComp)):
                continue
            if _called(node) == "map" or not (
                joins or _called(node) in ("list", "tuple", "enumerate")
            ):
                continue
            if id(argument) not in seen:
                seen.add(id(argument))
                yield argument, joins
        elif (
            isinstance(node, ast.Call)
            and _called(node) == "map"
            and len(node.args) == 2
            and id(node.args[1]) not in seen
        ):
            seen.add(id(node.args[1]))
            yield node.args[1], False


def _is_set(node: ast.expr, source: Source) -> bool:
    if isinstance(node, (ast.Set, ast.SetComp)):
        return True
    if isinstance(node, ast.Call):
        return _called(node) in (
            "set",
            "frozenset",
            "union",
            "intersection",
            "difference",
            "symmetric_difference",
        )
    if isinstance(node, ast.BinOp) and isinstance(
        node.op, (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)
    ):
        return _is_set(node.left, source) or _is_set(node.right, source)
    if isinstance(node, ast.Name):
        try:
            tree = tree_of(source.text)
        except (SyntaxError, ValueError):
            return False
        given = [
            n.value
            for n in ast.walk(tree)
            if isinstance(n, (ast.Assign, ast.AnnAssign))
            and n.value is not None
            and any(
                isinstance(t, ast.Name) and t.id == node.id
                for t in (n.targets if isinstance(n, ast.Assign) else [n.target])
            )
        ]
        return bool(given) and all(
            not isinstance(g, ast.Name) and _is_set(g, source) for g in given
        )
    return False


def _all_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Set) and all(
        isinstance(e, ast.Constant) and isinstance(e.value, str) for e in node.elts
    )


def _open(node: ast.expr) -> str:
    return "(" if isinstance(node, (ast.GeneratorExp, ast.Starred)) else ""


def _close(node: ast.expr) -> str:
    return ")" if isinstance(node, (ast.GeneratorExp, ast.Starred)) else ""


def _wrap(where: Slice, head: str, foot: str) -> list[Edit]:
    return [Edit(Slice(where.start, where.start), head), Edit(Slice(where.end, where.end), foot)]


def _past_brackets(source: Source, at: int, end: int) -> int:
    """Behind the closing brackets of an argument that is itself in brackets."""
    depth = source.text[at : end - 1].count(")")
    while depth:
        at = source.text.index(")", at) + 1
        depth -= 1
    return at


def _refused(why: str) -> Fix:
    return Fix(applicability="display", message="Not fixed", refused=why[:1].upper() + why[1:])
