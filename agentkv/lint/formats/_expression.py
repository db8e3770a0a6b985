"""What an expression of a template language reads, and what that says of how often it changes.

Expressions are read, never evaluated. Jinja, Nunjucks, Handlebars helpers and Semantic Kernel calls
are near enough to each other to share this reader.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentkv.lint.names import guess
from agentkv.lint.template import Level, Trait

RANK: dict[Level, int] = {
    "build": 0,
    "deploy": 1,
    "unknown": 2,
    "tenant": 3,
    "user": 4,
    "session": 5,
    "turn": 6,
    "call": 7,
}

_TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<path>[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*|\[\s*(?:'[^']*'|"[^"]*"|-?\d+)\s*\])*)
      | (?P<filter>\|\s*(?P<fname>[A-Za-z_]\w*))
      | (?P<keyword>\b)
      | (?P<other>\S)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = frozenset(
    [
        "and",
        "or",
        "not",
        "in",
        "is",
        "if",
        "else",
        "elif",
        "true",
        "false",
        "none",
        "True",
        "False",
        "None",
        "null",
        "undefined",
        "loop",
        "recursive",
        "ignore",
        "missing",
        "with",
        "without",
        "context",
        "import",
        "as",
        "self",
        "super",
        "caller",
        "varargs",
        "kwargs",
        "namespace",
    ]
)
_TESTS = frozenset(
    [
        "defined",
        "undefined",
        "none",
        "mapping",
        "string",
        "number",
        "sequence",
        "iterable",
        "boolean",
        "even",
        "odd",
    ]
)
_CLOCKS = re.compile(
    r"""(?:^|\.)(?:now|utcnow|today|strftime_now|localtime|gmtime|time_ns|perf_counter|monotonic
        |get_current_time|current_time|current_date|timestamp|time\.time|getTime)$
      | ^(?:time|date|datetime)$""",
    re.VERBOSE,
)
_DATES = frozenset({"today", "current_date", "get_current_date"})
_RANDOM_IDS = re.compile(
    r"(?:^|\.)(?:uuid|uuid[1-7]|uuidv4|token_hex|token_urlsafe|nanoid|random_id|guid|ulid)$"
)
_RANDOM = re.compile(
    r"(?:^|\.)(?:random|randint|rand|choice|shuffle|sample|lipsum|faker|random_choice)$"
)
_CLOCK_FILTERS = frozenset({"strftime_now", "now", "timesince", "naturaltime"})
_FORMATTERS = frozenset({"date", "strftime", "format", "isoformat", "dateformat"})
_FINE = re.compile(r"%-?[#_0^]?[SMfsTXcRrL]")
_HOUR = re.compile(r"%-?[#_0^]?[HIpP]")
_SCORE = re.compile(r"[._](?:score|similarity|distance|relevance|certainty)\Z", re.IGNORECASE)
"""What a retriever found of a document: part of its name, where it is written out."""
_SORTS = frozenset({"sort", "dictsort", "sorted", "sortBy", "sort_by"})


@dataclass(frozen=True, slots=True)
class Facts:
    """How often a value changes and what is in it."""

    level: Level
    traits: frozenset[Trait] = frozenset()
    why: str = ""
    known: bool = False
    name: str = ""
    reads: tuple[str, ...] = ()
    example: str | None = None


BUILD = Facts("build", why="a literal", known=True)


@dataclass(slots=True)
class Names:
    """What is known of names before an expression is read: a file's samples, the configuration,
    and what the template itself defines (`set`, loop variables)."""

    stability: Mapping[str, Level] = field(default_factory=dict)
    evidence: Mapping[str, Facts] = field(default_factory=dict)
    local: dict[str, Facts] = field(default_factory=dict)

    def child(self) -> Names:
        return Names(self.stability, self.evidence, dict(self.local))

    def look_up(self, path: str) -> Facts:
        """Facts of a name with attributes, as surely as they can be had."""
        found = self._known(path)
        if _SCORE.search(path) and found.level not in ("build", "deploy"):
            return replace(found, traits=found.traits | {"score_text"})
        return found

    def _known(self, path: str) -> Facts:
        root = re.split(r"[.\[]", path, maxsplit=1)[0].strip()
        for key in dict.fromkeys((path, root)):
            if key in self.stability:
                return Facts(
                    self.stability[key], guess(path)[1], "configuration", True, path, (root,)
                )
        if root in self.local:
            return self._local(path, root)
        for key in dict.fromkeys((path, root)):
            if key in self.evidence:
                found = self.evidence[key]
                return Facts(
                    found.level,
                    found.traits | guess(path)[1],
                    found.why,
                    found.known,
                    path,
                    (root,),
                    found.example,
                )
        level, traits = guess(path)
        why = f"named `{path}`" if level != "unknown" else ""
        return Facts(level, traits, why, False, path, (root,))

    def _local(self, path: str, root: str) -> Facts:
        base = self.local[root]
        if base.level != "unknown":
            return Facts(base.level, base.traits, base.why, base.known, path, (root,))
        level, traits = guess(path)
        return Facts(
            level,
            traits | base.traits,
            f"named `{path}`" if level != "unknown" else "",
            False,
            path,
            (root,),
        )


@dataclass(slots=True)
class Parsed:
    """The parts of an expression that matter here."""

    paths: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    filters: list[str] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)


def parse(expression: str) -> Parsed:
    found = Parsed()
    at, after_is = 0, False
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None or match.end() == at:
            at += 1
            continue
        at = match.end()
        if match["string"] is not None:
            found.strings.append(match["string"][1:-1])
        elif match["fname"] is not None:
            found.filters.append(match["fname"])
        elif match["path"] is not None:
            path = re.sub(r"\s+", "", match["path"])
            path = re.sub(r"\[['\"]([^'\"\]]*)['\"]\]", r".\1", path)
            called = expression[at:].lstrip().startswith("(")
            before = expression[: match.start()].rstrip()
            if path in _WORDS:
                after_is = path == "is" or (path == "not" and after_is)
                continue
            if after_is:  # the name of a test
                after_is = False
                continue
            if before.endswith("."):  # an attribute of something in brackets: f(x).y
                if called:
                    found.calls.append(path)
                continue
            if called:
                found.calls.append(path)
            elif re.match(r"\s*=(?!=)", expression[at:]):  # a keyword argument
                continue
            else:
                found.paths.append(path)
            continue
        after_is = False
    return found


def grain(formats: list[str], default: Trait = "clock") -> frozenset[Trait]:
    """Traits of a time that is written by the first of `formats` that has a `%` in it."""
    for one in formats:
        if "%" in one:
            if _FINE.search(one):
                return frozenset({"clock"})
            return frozenset({"clock", "hour"}) if _HOUR.search(one) else frozenset({"date"})
    return frozenset({default})


def clock(parsed: Parsed, expression: str) -> Facts | None:
    """Facts of an expression that asks the clock or chance, None where it does neither."""
    names = parsed.calls + [f for f in parsed.filters if f in _CLOCK_FILTERS]
    for call in names:
        if _CLOCKS.search(call) and not _owned(call):
            last = call.rsplit(".", 1)[-1]
            day = last in _DATES or re.search(r"\)\s*\.\s*date\s*\(", expression) is not None
            return Facts(
                "call", grain(parsed.strings, "date" if day else "clock"), f"{call}()", True, call
            )
        if _RANDOM_IDS.search(call):
            return Facts("call", frozenset({"random_id"}), f"{call}()", True, call)
        if _RANDOM.search(call):
            return Facts("call", frozenset({"random_content"}), f"{call}()", True, call)
    for name in parsed.filters:
        if name in ("random", "shuffle"):
            kind: Trait = "random_content" if name == "random" else "shuffled"
            return Facts(
                "call",
                frozenset({kind}),
                f"filter `{name}`",
                True,
                parsed.paths[0] if parsed.paths else name,
            )
    return None


def _owned(call: str) -> bool:
    """`doc.date()` and `message.timestamp()` are somebody's time, not now's."""
    root, _, last = call.rpartition(".")
    return bool(root) and last in ("timestamp", "getTime") and "now" not in call


def facts(expression: str, names: Names) -> Facts:
    """What an expression's value is: the most volatile of all that it reads."""
    parsed = parse(expression)
    timed = clock(parsed, expression)
    reads = tuple(dict.fromkeys(re.split(r"[.\[]", p, maxsplit=1)[0] for p in parsed.paths))
    if timed is not None:
        return Facts(timed.level, timed.traits, timed.why, True, timed.name, reads)
    found = [names.look_up(p) for p in parsed.paths]
    roots = {re.split(r"[.\[]", c, maxsplit=1)[0] for c in parsed.calls}
    for call in parsed.calls:
        root = call.split(".", 1)[0]
        if root in names.local:
            found.append(names.look_up(root))
        elif "." in call and root not in ("range",):
            # x.strip(), x.items(): a method, so the value is x's
            found.append(names.look_up(call.rpartition(".")[0]))
        elif call not in ("range", "dict", "list", "joiner", "cycler", "raise_exception"):
            level, guessed = guess(call)
            found.append(Facts(level, guessed, f"function `{call}`", False, call, (call,)))
    if not found:
        return Facts("build", frozenset(), "a literal", True, "", reads)
    worst = max(found, key=lambda f: RANK[f.level])
    traits: frozenset[Trait] = frozenset().union(
        *(f.traits for f in found if f.level == worst.level)
    )
    if any(f in _SORTS for f in parsed.filters):
        traits -= {"set_order", "unsorted_json", "score_order", "listing"}
    reads = tuple(dict.fromkeys((*reads, *sorted(r for r in roots if r in names.local))))
    return Facts(worst.level, traits, worst.why, worst.known, worst.name, reads, worst.example)
