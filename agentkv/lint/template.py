"""What a rule sees of a file: prompts as messages of text and holes, and the requests that send them.

A format reads a file into a `Document`; no rule ever looks at a syntax tree. Offsets are into the
source's text, so that a finding can point and a fix can cut.

- A `Template` is one prompt: messages (`Part`) of `Text` and `Hole` in the order in which they are
  rendered. A `Hole` is a place where another text goes in: a variable, an expression, a loop, a
  conditional section. Its `level` says how often that text changes, `unknown` where nobody can tell.
- A `Request` is a call of a model: its tools, its cache settings, and what happens to the history
  around it.

Levels are the stabilities of `agentkv.prompt.segment`, from `build` (a literal) to `call` (a clock).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from agentkv.lint.source import Slice

Level = Literal["build", "deploy", "tenant", "user", "session", "turn", "call", "unknown"]

Role = Literal["system", "user", "assistant", "tool", "unknown"]

Trait = Literal[
    # what is in it
    "clock",  # time of day
    "hour",  # with clock or date: nothing finer than hours is left of it
    "date",  # day granularity
    "random_id",  # uuid, token, hash of time
    "random_content",  # random.choice and the like
    "counter",  # step numbers, tokens left
    "host_state",  # pid, hostname, cwd, temporary names, git status
    "object_repr",  # repr of an object, with its address
    "user_data",  # names, ids, profiles, locale of a person
    "tenant_data",  # brand, organisation
    "memory",  # memories, summaries about the user
    "question",
    "context",  # retrieved or pasted documents
    "history",
    "summary",  # a summary of the conversation
    "examples",
    "schema",  # format instructions, JSON schema
    "tools",  # a tool list as text
    "scratchpad",  # an agent's steps so far
    "image",
    "padding",  # filler that is there for its length
    # how it came to be
    "import_time",  # computed when the module is imported
    "callable_partial",  # a function called at each rendering
    "via_helper",  # comes out of another function
    "memoised",  # cached: one value a process
    "conditional",  # a section that is there or not
    "loop",
    "set_order",  # iterates a set
    "unsorted_json",  # json.dumps of a runtime dict
    "listing",  # directory listings
    "completion_order",  # as_completed
    "tie_order",  # most_common, sort by score
    "score_order",  # retrieval order
    "score_text",  # a score is part of the text
    "shuffled",
    "selector",  # examples chosen by similarity
    "locale",  # locale-dependent formatting
    "schema_order",  # a schema whose key order is meaningful
    "reencoded",  # an image that is resized or encoded again for each call
    "signed_url",  # a link that is signed anew for each call
    "fixed_text",  # a text that never changes, but that could not be read here: its size is not known
    "dedented",  # filled in before dedent(): its lines decide the indentation of the rest
]


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text as it is rendered. `slice` is where it stands in the file (escapes included);
    None when it was put together from elsewhere (another module, an import)."""

    value: str
    slice: Slice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """A place where other text goes in.

    `expr` is how it is written (`{user_name}`, `{{ now() }}`), `name` the variable that it is about.
    `why` says where the level comes from, in a few words ("datetime.now()", "parameter `name`",
    "config"). `slice` covers everything of it in the file, delimiters included. `known` is False
    where the level is a guess from its name, True where the code shows it. `example` is a value
    that was found for it. `reads` are the names that it needs (a fix may not move it before their
    definition).
    """

    expr: str
    name: str
    level: Level
    slice: Slice | None
    traits: frozenset[Trait] = frozenset()
    why: str = ""
    known: bool = False
    example: str | None = None
    reads: tuple[str, ...] = ()
    defined_at: Slice | None = None
    """Where the value is made, if elsewhere: the place that a finding may point at too."""
    inner: tuple[Text | Hole, ...] = ()
    """For sections (conditional, loop): what is inside."""


Piece = Text | Hole


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One message. `slice` is the whole of it in the file; `placeholder` is a run of messages that
    come from outside (a history)."""

    role: Role
    pieces: tuple[Piece, ...]
    slice: Slice | None = None
    placeholder: bool = False
    marker: Slice | None = None
    """A cache marker (cache_control, cachePoint) on this part."""
    blocks: int = 1
    """Blocks of content, as providers count them: texts, images, tool calls, tool results."""
    marked: tuple[int, ...] = ()
    """Which of them carry markers, from 0; empty where only `marker` is known: the last one."""

    @property
    def static(self) -> bool:
        return all(isinstance(p, Text) for p in self.pieces) and not self.placeholder


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One prompt. `slice` is the region of the file that makes it, `writable` whether its text may
    be edited in place there. `followed` is True when more messages follow at run time (a system
    prompt with a history behind it), so that a change at its end is expensive too."""

    format: str
    name: str
    parts: tuple[Part, ...]
    slice: Slice
    writable: bool = True
    followed: bool = False
    syntax: Literal[
        "python", "fstring", "format", "percent", "dollar", "jinja", "mustache", "none"
    ] = "none"
    """How a hole is written in this template's text."""

    def holes(self) -> Iterator[tuple[int, int, Hole]]:
        """`(part, piece, hole)` in rendering order."""
        for i, part in enumerate(self.parts):
            for j, piece in enumerate(part.pieces):
                if isinstance(piece, Hole):
                    yield i, j, piece

    def pieces(self) -> Iterator[tuple[int, int, Piece]]:
        for i, part in enumerate(self.parts):
            for j, piece in enumerate(part.pieces):
                yield i, j, piece


HistoryOpKind = Literal[
    "front_truncation",  # history[-10:]
    "edited_in_place",
    "system_mutated",  # messages[0] is rewritten in a loop
    "inserted_mid",  # messages.insert(1, ...)
    "inserted_front",
    "reasoning_stripped",
    "reserialised",  # tool arguments dumped again
    "mid_trim",  # middle-out cuts
    "summarised_into_head",
    "rebuilt_each_call",  # system text read again from a file or a database
    "tail_dependent",  # a chat template that renders old messages by where the last one stands
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOp:
    """Something that is done to a list of messages.

    A chat template does such things too: its document has a `Request` with api `chat_template`,
    whose history says `reasoning_stripped` or `tail_dependent` where the template does that.
    """

    kind: HistoryOpKind
    slice: Slice
    detail: str = ""
    in_loop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsUse:
    """How the tools of a request come to be."""

    slice: Slice
    traits: frozenset[Trait] = frozenset()
    filtered: bool = False
    """Chosen by user, state or turn."""
    dynamic_schema: bool = False
    """A description or an enum holds run-time values."""
    level: Level = "unknown"
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One argument of a request that matters to a cache: `prompt_cache_key`, `cache_salt`,
    `tool_choice`, `response_format`, `model`, `thinking` ..."""

    name: str
    slice: Slice
    level: Level
    value: str | None = None
    traits: frozenset[Trait] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call of a model (or a recorded request). `template` is its prompt where it is known."""

    api: str
    """openai, anthropic, bedrock, gemini, litellm, langchain, llamaindex, haystack, dspy,
    chat_template, unknown."""
    slice: Slice
    template: Template | None = None
    tools: ToolsUse | None = None
    settings: tuple[Setting, ...] = ()
    history: tuple[HistoryOp, ...] = ()
    markers: tuple[Slice, ...] = ()
    marker_ttls: tuple[str, ...] = ()
    fan_out: bool = False
    """Sent many times in parallel with one prefix, none of them first."""
    in_loop: bool = False
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """`agentkv: ignore[KV101, KV2] why` in a comment. Covers its own line and, alone on a line, the
    next one. `codes` empty: all. `level` for `agentkv: stable=deploy`."""

    line: int
    codes: tuple[str, ...]
    reason: str
    slice: Slice
    alone: bool = False
    whole_file: bool = False
    stable: Level | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Everything that a format found in one file. No templates and no requests: not a prompt file,
    and `skipped` says why if there is something to say."""

    format: str
    templates: tuple[Template, ...] = ()
    requests: tuple[Request, ...] = ()
    suppressions: tuple[Suppression, ...] = ()
    skipped: str | None = None
    notes: tuple[str, ...] = field(default=())
    named: tuple[tuple[int, str], ...] = ()
    """Offsets from which on lines of the file are called something (`cell 3, line 2`)."""
    editable: bool = True
    """False: findings have no edits, whatever their rule could do."""
