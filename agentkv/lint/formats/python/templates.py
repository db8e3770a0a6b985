"""Prompt templates of frameworks: LangChain, LlamaIndex, Haystack."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python import fields
from agentkv.lint.formats.python.bits import Lit, Slot, as_text, tight
from agentkv.lint.formats.python.drafts import PartDraft
from agentkv.lint.formats.python.facts import Facts, Where, fact, join
from agentkv.lint.formats.python.looks import Looks
from agentkv.lint.formats.python.messages import (
    CLASSES,
    METHODS,
    Reading,
    content_bits,
    parts_of,
)
from agentkv.lint.formats.python.values import (
    Dict,
    Fn,
    Item,
    Lib,
    Made,
    Many,
    Str,
    Thing,
    Use,
    Value,
    name_of,
    with_facts,
)
from agentkv.lint.template import Role

TEMPLATES = re.compile(
    r"(?:^|\.)(?:ChatPromptTemplate|PromptTemplate|HumanMessagePromptTemplate|SystemMessagePromptTemplate|"
    r"AIMessagePromptTemplate|RichPromptTemplate|PromptBuilder|ChatPromptBuilder|FewShotPromptTemplate|"
    r"FewShotChatMessagePromptTemplate|FewShotPromptWithTemplates|PipelinePromptTemplate|SystemPrompt|"
    r"QuestionAnswerPrompt|RefinePrompt|SimpleInputPrompt|SelectorPromptTemplate)"
    r"(?:\.(?:from_messages|from_template|from_examples|from_role_strings))?$"
)

_FILLS = frozenset(
    [
        "format",
        "format_messages",
        "format_prompt",
        "invoke",
        "ainvoke",
        "stream",
        "astream",
        "aformat",
        "aformat_messages",
        "run",
        "batch",
        "abatch",
        "aformat_prompt",
        "predict",
        "apredict",
        "as_messages",
        "format_prompts",
    ]
)


class Templates(Looks):
    """Records templates as they are made, and what fills them in later."""

    def framework_call(
        self, dotted: str, node: ast.Call, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> Value | None:
        where = self.module.where(node)
        made = Made(dotted, args, kwargs, where, Use())
        if TEMPLATES.search(dotted):
            self._template(made, node)
            return made
        tail = made.tail
        if tail in CLASSES or tail in METHODS or tail in ("MessagesPlaceholder", "ChatMessage"):
            return made
        if tail in ("Template",) and ("jinja" in dotted or dotted == "string.Template"):
            if args and isinstance(args[0], Str) and args[0].use is not None:
                args[0].use.formatted = True
                args[0].use.syntax = "jinja" if "jinja" in dotted else "dollar"
            return made
        if tail.endswith(("Selector", "Selector.from_examples")) or "Selector" in dotted:
            return made
        if tail == "assign" and "Runnable" in dotted:
            return made
        if tail[:1].isupper() or tail.startswith("from_"):
            level = (
                join([v.facts for v in (*args, *kwargs.values())]) if args or kwargs else Facts()
            )
            return replace(made, level=level if level.known else Facts())
        return None

    def _template(self, made: Made, node: ast.Call) -> None:
        owner = made.kind
        if re.search(r"(?:System|Human|AI)MessagePromptTemplate", owner):
            return  # a part of a chat
        self._partials(made, made.kwargs.get("partial_variables"))
        self._partials(made, made.kwargs.get("function_mappings"))
        syntax = _syntax(made)
        reading = Reading(syntax, made.use)
        if "FewShot" in owner and "Chat" not in owner:
            parts = [self._few_shots(made, reading)]
        elif "Rich" in owner:
            parts = self._rich(made, reading)
        else:
            source = self._source(made)
            if source is None:
                return
            parts = self._chat_parts(source, reading)
        parts = [p for p in parts if p is not None]
        followed = bool(parts) and (
            parts[-1].placeholder or (len(parts) == 1 and parts[0].role == "system")
        )
        self.emit(
            parts,
            self.module.where(node),
            evidence="framework",
            followed=followed,
            use=made.use,
            name="",
        )

    @staticmethod
    def _source(made: Made) -> Value | None:
        for key in ("messages", "template", "message_templates", "template_str", "input"):
            if key in made.kwargs:
                return made.kwargs[key]
        return made.args[0] if made.args else None

    def _chat_parts(self, source: Value, reading: Reading) -> list[PartDraft]:
        if isinstance(source, Many):
            parts: list[PartDraft] = []
            for item in source.items:
                if isinstance(item.value, Made) and "FewShot" in item.value.kind:
                    parts.append(self._shots(item))
                else:
                    parts += parts_of(Many((item,)), reading)
            return parts
        return parts_of(source, reading)

    def _shots(self, item: Item) -> PartDraft:
        """Few-shot messages in a chat."""
        made = item.value
        assert isinstance(made, Made)
        selected = "example_selector" in made.kwargs
        facts = (
            fact("turn", "examples chosen by similarity", "examples", "selector")
            if selected
            else fact("build", "fixed examples", "examples")
        )
        return PartDraft(
            "unknown",
            (Slot("examples", "examples", facts, item.where),),
            item.where,
            placeholder=True,
        )

    def _few_shots(self, made: Made, reading: Reading) -> PartDraft:
        bits: list[Lit | Slot] = []
        for key in ("prefix", "", "suffix"):
            value = made.kwargs.get(key)
            if key and isinstance(value, Str):
                bits += content_bits(value, reading, None)
            elif not key:
                chosen = made.kwargs.get("example_selector")
                given = made.kwargs.get("examples")
                if chosen is not None:
                    facts = fact("turn", "examples chosen by similarity", "examples", "selector")
                elif given is not None:
                    facts = given.facts.plus("examples")
                else:
                    continue
                bits.append(Slot("examples", "examples", facts, None))
        return PartDraft("user", tight(bits), made.where)

    def _rich(self, made: Made, reading: Reading) -> list[PartDraft]:
        """LlamaIndex: `{% chat role="user" %} ... {% endchat %}`."""
        source = self._source(made)
        if not isinstance(source, Str):
            return []
        lits = [b for b in source.bits if isinstance(b, Lit)]
        reading.syntax = "jinja"
        if len(lits) != 1:
            return parts_of(source, reading)
        lit, parts = lits[0], list[PartDraft]()
        for m in re.finditer(
            r"\{%-?\s*chat role=[\"'](\w+)[\"']\s*-?%\}(.*?)\{%-?\s*endchat\s*-?%\}",
            lit.value,
            re.DOTALL,
        ):
            piece = Str((lit.part(m.start(2), m.end(2)),))
            role: Role = {"system": "system", "assistant": "assistant"}.get(m[1], "user")  # type: ignore[assignment]
            parts.append(
                PartDraft(
                    role, content_bits(piece, reading, None), lit.part(m.start(), m.end()).where
                )
            )
        return parts or parts_of(source, reading)

    def _partials(self, made: Made, given: Value | None) -> None:
        if isinstance(given, Dict):
            for e in given.entries:
                if e.key:
                    made.use.bindings.setdefault(e.key, []).append(self.rendered(e.value))

    def chained(self, left: Value, right: Value) -> None:
        if not isinstance(right, Made) or not TEMPLATES.search(right.kind):
            return
        named: dict[str, Value] = {}
        if isinstance(left, Dict):
            named = {e.key: e.value for e in left.entries if e.key}
        elif isinstance(left, Made) and re.search(
            r"Runnable(?:\w*\.assign|Parallel|Map)$", left.kind
        ):
            named = dict(left.kwargs)
            for arg in left.args:
                if isinstance(arg, Dict):
                    named |= {e.key: e.value for e in arg.entries if e.key}
        for key, value in named.items():
            if isinstance(value, Made) and value.tail == "RunnableLambda" and value.args:
                value = value.args[0]
            made = self.rendered(value)
            # Most steps only pass on what they are given: then the name says more.
            if made.facts.known and made.facts.level == "call":
                right.use.bindings.setdefault(key, []).append(made)

    def rendered(self, value: Value) -> Value:
        """A value given once; a function is called at each rendering."""
        if isinstance(value, Fn):
            function = self.program.function(value.owner)
            if function is not None:
                result = self.call_function(
                    function, value.bound, {}, Where(self.module.path, 0, 0)
                )
                return with_facts(
                    Thing(result.facts) if isinstance(result, Str) else result,
                    result.facts.plus("callable_partial").minus("import_time"),
                )
        if isinstance(value, Made) and value.kind == "lambda":
            return Thing(value.facts.plus("callable_partial"), "lambda")
        if isinstance(value, Lib):
            from agentkv.lint.formats.python import sources

            facts = sources.of_call(value.dotted)
            if facts is not None:
                return Thing(facts.plus("callable_partial"), value.dotted)
        return value

    def framework_method(
        self,
        node: ast.Call,
        name: str,
        base: Made,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
    ) -> Value | None:
        if not TEMPLATES.search(base.kind):
            if name in (
                "bind_tools",
                "with_structured_output",
                "bind",
                "with_config",
                "with_retry",
            ):
                return base
            return None
        if name in ("partial", "partial_format"):
            for key, value in kwargs.items():
                base.use.bindings.setdefault(key, []).append(self.rendered(value))
            return base
        if name in _FILLS:
            named = dict(kwargs)
            for arg in args:
                if isinstance(arg, Dict):
                    named |= {e.key: e.value for e in arg.entries if e.key}
            for key, value in named.items():
                base.use.bindings.setdefault(key, []).append(value)
            return Thing(Facts("unknown"), "prompt", fn="template")
        return base if name in ("pipe", "with_config") else Thing(Facts(), name_of(node))


def _syntax(made: Made) -> fields.Syntax:
    word = as_text(made.kwargs.get("template_format"))
    if "Builder" in made.kind or "Rich" in made.kind or word == "jinja2":
        return "jinja"
    return "mustache" if word == "mustache" else "format"
