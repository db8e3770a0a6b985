"""Jinja text as pieces: what is fixed, what comes in, and the sections that may or may not be there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from agentkv.lint.formats._expression import RANK, Facts, Names, facts, grain, parse
from agentkv.lint.formats._jinja_tokens import TemplateError, Token, tokens
from agentkv.lint.formats._messages import Item, Message
from agentkv.lint.formats._region import Region
from agentkv.lint.template import Hole, Level, Piece, Role, Text, Trait

_WORD = re.compile(r"\s*([A-Za-z_]\w*)\s*")
_FOR = re.compile(r"\s*(?P<targets>[\w\s,()]+?)\s+in\s+(?P<rest>.*)\Z", re.DOTALL)
_CUT = re.compile(r"\s(?:if|recursive)\b")
_SET = re.compile(
    r"\s*(?P<targets>[A-Za-z_][\w.]*(?:\s*,\s*[A-Za-z_][\w.]*)*)\s*(?P<rest>=.*)?\Z", re.DOTALL
)
_MACRO = re.compile(r"\s*(?P<name>\w+)\s*\((?P<params>.*)\)\s*\Z", re.DOTALL)
_CALL = re.compile(r"\s*(?:self\.)?(?P<name>\w+)\s*\((?P<rest>.*)", re.DOTALL)
_ROLE = re.compile(r"role\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_NAME = re.compile(r"\s*(?:\"([^\"]+)\"|'([^']+)')")
_PRESENT = re.compile(r"\s*(?:not\s+)?[\w.\[\]'\"]+\s*(?:is\s+(?:not\s+)?(?:defined|none))?\s*\Z")
_PAIRS = {
    "if": "endif",
    "for": "endfor",
    "asyncEach": "endeach",
    "asyncAll": "endall",
    "block": "endblock",
    "filter": "endfilter",
    "with": "endwith",
    "autoescape": "endautoescape",
    "call": "endcall",
    "macro": "endmacro",
    "generation": "endgeneration",
    "message": "endmessage",
    "chat": "endchat",
    "trans": "endtrans",
    "spaceless": "endspaceless",
}
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}

Load = Callable[[str], str | None]


def role_of(word: str) -> Role:
    return _ROLES.get(word.strip().lower(), "unknown")


@dataclass(slots=True)
class Parsed:
    """A text's items in rendering order, and what it says of other files."""

    items: list[Item]
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Node:
    token: Token
    word: str
    body: str
    branches: list[tuple[Token, list[_Node | Token]]]
    """Opening (or `else`) tag and what follows it."""
    end: int = 0


@dataclass(slots=True)
class _Reader:
    region: Region
    names: Names
    load: Load | None
    depth: int = 0
    macros: dict[str, list[Item]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    # -- pieces -----------------------------------------------------------------------------------

    def items(self, nodes: Iterable[_Node | Token], names: Names) -> list[Item]:
        out: list[Item] = []
        for node in nodes:
            if isinstance(node, _Node):
                out += self.section(node, names)
            elif node.kind == "text":
                out.append(self.region.piece(node.start, node.end))
            elif node.kind == "raw":
                if node.body:
                    out.append(self.region.piece(node.start, node.end, node.body))
            elif node.kind == "var":
                out += self.variable(node, names)
            elif node.kind == "tag":
                out += self.tag(node, names)
        return out

    def hole(
        self,
        start: int,
        end: int,
        found: Facts,
        traits: Iterable[Trait] = (),
        inner: Iterable[Piece] = (),
    ) -> Hole:
        return Hole(
            expr=self.raw(start, end),
            name=found.name,
            level=found.level,
            slice=self.region.slice(start, end),
            traits=found.traits | frozenset(traits),
            why=found.why,
            known=found.known,
            example=found.example,
            reads=found.reads,
            inner=tuple(inner),
        )

    def raw(self, start: int, end: int) -> str:
        return self.region.text[start:end]

    def variable(self, token: Token, names: Names) -> list[Item]:
        call = _CALL.match(token.body)
        if call is not None and call["name"] in self.macros:
            arguments = facts(call["rest"], names)
            body = [_unplaced(p) for p in _flat(self.macros[call["name"]])]
            found = _worst([arguments, *(_facts_of(p) for p in body if isinstance(p, Hole))])
            found = replace(
                found, name=found.name or call["name"], reads=(call["name"], *found.reads)
            )
            return [self.hole(token.start, token.end, found, inner=body)]
        if re.match(r"\s*raise_exception\s*\(", token.body):
            return []
        if re.match(r"\s*(?:super|caller)\s*\(\s*\)", token.body):
            return [self.hole(token.start, token.end, Facts("build", why="a block of its parent"))]
        found = facts(token.body, names)
        if not found.name and found.level == "build":
            strings = parse(token.body).strings
            if re.fullmatch(r"\s*(?:'[^'\\]*'|\"[^\"\\]*\")\s*", token.body):
                return [self.region.piece(token.start, token.end, strings[0])]
        return [self.hole(token.start, token.end, found)]

    def tag(self, token: Token, names: Names) -> list[Item]:
        word, body = _word(token)
        if word == "set":
            self.assign(body, names)
        elif word == "include":
            return self.include(token, body, names)
        elif word == "extends":
            self.notes.append(f"extends {body.strip()}: text of the parent is not read")
        elif word in ("import", "from"):
            for name in re.findall(
                r"\w+",
                body.partition(" import ")[2] if word == "from" else body.partition(" as ")[2],
            ):
                names.local[name] = Facts("build", why="imported", name=name)
        elif word == "now":
            strings = parse(body).strings
            return [
                self.hole(
                    token.start, token.end, Facts("call", grain(strings), "{% now %}", True, "now")
                )
            ]
        elif word == "cycle":
            return [self.hole(token.start, token.end, facts(body, names))]
        return []

    def assign(self, body: str, names: Names) -> None:
        found = _SET.match(body)
        if found is None or found["rest"] is None:
            return
        value = facts(found["rest"][1:], names)
        for target in found["targets"].split(","):
            name = target.strip()
            if "." in name:
                root = name.split(".", 1)[0]
                old = names.local.get(root)
                names.local[root] = value if old is None else _worst([old, value])
            elif value.known or value.level != "unknown":
                names.local[name] = replace(value, name=value.name or name)
            else:
                names.local[name] = Facts(
                    "unknown", value.traits, value.why, False, name, value.reads
                )

    def include(self, token: Token, body: str, names: Names) -> list[Item]:
        name = _NAME.match(body)
        if name is None:
            found = facts(body.partition(" with ")[0].partition(" without ")[0], names)
            return [self.hole(token.start, token.end, found)]
        path = name[1] or name[2]
        text = self.load(path) if self.load is not None and self.depth < 4 else None
        inner: list[Piece] = []
        if text is None:
            self.notes.append(f"include {path!r}: not found, taken as fixed text")
        else:
            try:
                other = _Reader(
                    Region(text, placed=False), names.child(), self.load, self.depth + 1
                )
                inner = _flat(other.items(_tree(text, False), other.names))
            except TemplateError:
                self.notes.append(f"include {path!r}: cannot be read")
        found = _worst(
            [
                Facts("build", why=f"include of {path!r}", name=path),
                *(_facts_of(p) for p in inner if isinstance(p, Hole)),
            ]
        )
        return [self.hole(token.start, token.end, replace(found, name=path), inner=inner)]

    # -- sections ---------------------------------------------------------------------------------

    def section(self, node: _Node, names: Names) -> list[Item]:
        start, end = node.token.start, node.end
        word = node.word
        if word == "set":
            inner = self.items(node.branches[0][1], names.child())
            name = re.split(r"[|\s]", node.body.strip(), maxsplit=1)[0]
            self.macros_of_set(name, inner, names)
            return []
        if word == "macro":
            self.macro(node, names)
            return []
        if word in ("message", "chat"):
            role = _ROLE.search(node.body)
            items = self.items(node.branches[0][1], names)
            where = self.region.slice(start, end)
            dynamic = role is None
            return [
                Message(
                    role_of((role[1] or role[2]) if role else ""),
                    _flat(items),
                    where,
                    dynamic and any(isinstance(i, Hole) for i in items),
                )
            ]
        if word == "generation":
            return self.items(node.branches[0][1], names)
        if word in ("for", "asyncEach", "asyncAll"):
            return self.loop(node, names)
        if word == "if":
            return self.condition(node, names)
        inner = self.items(node.branches[0][1], names.child() if word == "with" else names)
        if any(isinstance(i, Message) for i in inner) or word in (
            "autoescape",
            "spaceless",
            "block",
        ):
            return inner
        if word == "with":
            scope = names.child()
            for name, value in re.findall(r"(\w+)\s*=\s*([^,=]+)", node.body):
                scope.local[name] = facts(value, names)
            inner = self.items(node.branches[0][1], scope)
        elif word == "trans":
            return [
                self.hole(
                    start,
                    end,
                    Facts("user", frozenset({"locale"}), "translated by locale", True, "trans"),
                    inner=_flat(inner),
                )
            ]
        return [
            self.hole(
                start, end, Facts("build", why=f"{{% {word} %}}", name=word), inner=_flat(inner)
            )
        ]

    def macros_of_set(self, name: str, inner: list[Item], names: Names) -> None:
        found = _worst(
            [
                Facts("build", why="a literal", known=True),
                *(_facts_of(p) for p in _flat(inner) if isinstance(p, Hole)),
            ]
        )
        names.local[name] = replace(found, name=name)

    def macro(self, node: _Node, names: Names) -> None:
        found = _MACRO.match(node.body)
        if found is None:
            return
        scope = names.child()
        for param in re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|\Z)", found["params"]):
            scope.local[param] = Facts("build", why="a macro's parameter", name=param)
        self.macros[found["name"]] = []  # a macro that calls itself
        self.macros[found["name"]] = self.items(node.branches[0][1], scope)

    def loop(self, node: _Node, names: Names) -> list[Item]:
        found = _FOR.match(node.body)
        over = Facts("unknown")
        scope = names.child()
        if found is not None:
            cut = _CUT.search(found["rest"])
            over = facts(found["rest"][: cut.start()] if cut else found["rest"], names)
            if cut and (
                guard := facts(found["rest"][cut.end() :], _with(names, found["targets"], over))
            ):
                over = _worst([over, guard])
            scope = _with(names, found["targets"], over)
        inner: list[Item] = []
        for _, nodes in node.branches:
            inner += self.items(nodes, scope)
        if any(isinstance(i, Message) for i in inner):
            hole = self.hole(node.token.start, node.end, over, ("loop", "history"), _flat(inner))
            return [Message("unknown", [hole], hole.slice, True)]
        if _blank(inner):
            return []
        return [self.hole(node.token.start, node.end, over, ("loop",), _flat(inner))]

    def join(self, names: Names, scopes: list[Names]) -> None:
        """A name that branches set is as volatile as the most volatile of them."""
        for name in dict.fromkeys(n for s in scopes for n in s.local):
            found = [s.local[name] for s in scopes if name in s.local]
            if any(f is not names.local.get(name) for f in found):
                names.local[name] = _worst(found)

    def condition(self, node: _Node, names: Names) -> list[Item]:
        tests = [facts(_word(t)[1], names) for t, _ in node.branches if _word(t)[0] != "else"]
        found = _worst(tests)
        if found.level == "call" and all(_PRESENT.match(_word(t)[1]) for t, _ in node.branches[:1]):
            # Whether a time is given changes far less often than the time.
            found = replace(found, level="unknown", why="", known=False)
        scopes = [names.child() for _ in node.branches]
        branches = [
            self.items(nodes, scope)
            for (_, nodes), scope in zip(node.branches, scopes, strict=True)
        ]
        self.join(names, scopes)
        traits: list[Trait] = ["conditional"]
        found = replace(found, traits=frozenset())
        if any(isinstance(i, Message) for b in branches for i in b):
            out: list[Item] = []
            for item in (i for b in branches for i in b):
                if isinstance(item, Message) and not item.placeholder and item.pieces:
                    first, last = item.pieces[0].slice, item.pieces[-1].slice
                    if first is not None and last is not None and self.region.starts is None:
                        a, b = first.start - self.region.base, last.end - self.region.base
                        item = replace(item, pieces=[self.hole(a, b, found, traits, item.pieces)])
                out.append(item)
            return out
        inner = [p for b in branches for p in _flat(b)]
        if _blank(inner):
            return []  # it only sets names, or raises
        return [self.hole(node.token.start, node.end, found, traits, inner)]


def _with(names: Names, targets: str, over: Facts) -> Names:
    scope = names.child()
    for name in re.findall(r"\w+", targets):
        scope.local[name] = replace(over, name=name)
    return scope


def _facts_of(hole: Hole) -> Facts:
    inner = [_facts_of(p) for p in hole.inner if isinstance(p, Hole)]
    own = Facts(
        hole.level,
        hole.traits - {"conditional", "loop"},
        hole.why,
        hole.known,
        hole.name,
        hole.reads,
        hole.example,
    )
    return _worst([own, *inner])


def _worst(found: list[Facts]) -> Facts:
    if not found:
        return Facts("unknown")
    worst = max(found, key=lambda f: RANK[f.level])
    reads = tuple(dict.fromkeys(r for f in found for r in f.reads))
    return replace(worst, reads=reads)


def _blank(items: Iterable[Item]) -> bool:
    return all(isinstance(i, Text) and not i.value.strip() for i in items)


def _unplaced(piece: Piece) -> Piece:
    if isinstance(piece, Text):
        return replace(piece, slice=None)
    return replace(piece, slice=None, inner=tuple(_unplaced(p) for p in piece.inner))


def _flat(items: Iterable[Item]) -> list[Piece]:
    out: list[Piece] = []
    for item in items:
        if isinstance(item, Message):
            out += item.pieces
        else:
            out.append(item)
    return out


def _word(token: Token) -> tuple[str, str]:
    found = _WORD.match(token.body)
    return (found[1], token.body[found.end() :]) if found else ("", token.body)


def _tree(text: str, trim: bool) -> list[_Node | Token]:
    """Tokens with sections closed. Raises TemplateError where one is not."""
    root: list[_Node | Token] = []
    stack: list[_Node] = []
    into = root
    for token in tokens(text, trim=trim):
        if token.kind != "tag":
            into.append(token)
            continue
        word, body = _word(token)
        if word in _PAIRS or (word == "set" and "=" not in body):
            node = _Node(token, word, body, [(token, [])])
            into.append(node)
            stack.append(node)
            if len(stack) > 60:
                raise TemplateError("sections nested more than 60 deep", token.start)
            into = node.branches[-1][1]
        elif word in ("else", "elif", "elseif", "pluralize") and stack:
            stack[-1].branches.append((token, []))
            into = stack[-1].branches[-1][1]
        elif word.startswith("end") and (word in _PAIRS.values() or word == "endset"):
            if not stack or word != _PAIRS.get(stack[-1].word, "endset"):
                raise TemplateError(f"`{{% {word} %}}` closes nothing", token.start)
            stack.pop().end = token.end
            into = stack[-1].branches[-1][1] if stack else root
        else:
            into.append(token)
    if stack:
        raise TemplateError(f"`{{% {stack[-1].word} %}}` is never closed", stack[-1].token.start)
    return root


def read(region: Region, names: Names, *, load: Load | None = None, trim: bool = False) -> Parsed:
    """The items of a Jinja text. Raises TemplateError where it is none."""
    nodes = _tree(region.text, trim)
    reader = _Reader(region, names, load)
    if any(isinstance(n, Token) and n.kind == "tag" and _word(n)[0] == "extends" for n in nodes):
        # Only blocks of a child are rendered; what stands between them is not.
        nodes = [n for n in nodes if not isinstance(n, Token) or n.kind == "tag"]
    return Parsed(reader.items(nodes, reader.names), reader.notes)


def levels(pieces: Iterable[Piece]) -> set[Level]:
    return {p.level for p in pieces if isinstance(p, Hole)}
