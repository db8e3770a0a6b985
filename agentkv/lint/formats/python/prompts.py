"""Finding prompts as code is read: by what sends them, by framework, and by their looks."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python import apis, fields
from agentkv.lint.formats.python.base import Base
from agentkv.lint.formats.python.bits import Bits, Lit, Slot, as_text, size, text_of, tight
from agentkv.lint.formats.python.drafts import Draft, PartDraft, RequestDraft, SettingDraft
from agentkv.lint.formats.python.facts import Facts, Where, fact, join
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.merge import NONE
from agentkv.lint.formats.python.messages import (
    CLASSES,
    METHODS,
    Reading,
    content_bits,
    message,
    parts_of,
)
from agentkv.lint.formats.python.module import Class, Function
from agentkv.lint.formats.python.shapes import is_prompt, natural, role_of, score, strong_name
from agentkv.lint.formats.python.tools import tools_use
from agentkv.lint.formats.python.values import (
    Cls,
    Dict,
    Fn,
    Item,
    Lib,
    Made,
    Many,
    Obj,
    Str,
    Thing,
    Use,
    Value,
    name_of,
    ops_of,
    walk,
    with_facts,
)
from agentkv.lint.source import Slice
from agentkv.lint.template import HistoryOp, HistoryOpKind, Role, ToolsUse

DYNAMIC = re.compile(
    r"(?:dynamic_prompt|\.system_prompt|\.instructions|\.user_prompt|\.prompt\(|^prompt$|mcp\.prompt)"
)
_RUN = re.compile(
    r"^(?:a?invoke|a?stream|a?batch|a?predict|a?generate|__call__|a?call_as_llm|a?predict_messages|astream_events|a?complete|a?chat|stream_chat|astream_chat|run|run_sync|run_stream|kickoff|query)$"
)
_MODEL = re.compile(
    r"(?:llm|model|chat|client|gpt|claude|agent|chain|assistant|runnable|lm|openai|ollama)",
    re.IGNORECASE,
)
_TEMPLATES = re.compile(
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
_NO_WORDS = frozenset({"help", "description", "usage", "epilog", "doc", "message_help"})


class Prompts(Base):
    """Records prompts and requests in the program's drafts."""

    fan: int = 0

    def emit(
        self,
        parts: list[PartDraft],
        where: Where,
        *,
        name: str = "",
        evidence: str = "sink",
        followed: bool = False,
        request: RequestDraft | None = None,
        use: Use | None = None,
    ) -> None:
        kept = tuple(p for p in parts if p.bits or p.placeholder)
        if not kept and request is None:
            return
        self.program.drafts.setdefault(self.module.path, []).append(
            Draft(
                kept,
                where,
                self.owner,
                name or self.within,
                followed=followed,
                evidence=evidence,
                request=request,
                use=use,
                within=self.within,
            )
        )

    # -- by looks --------------------------------------------------------------------------------

    def considered(self, name: str, value: Value, node: ast.expr) -> None:
        if name in _NO_WORDS:
            return
        if isinstance(value, Str):
            if size(value.bits) < 40 or self._said(name):
                return
            text = _shown(value.bits)
            if is_prompt(name, text, within=self.within):
                role: Role = role_of(name)  # type: ignore[assignment]
                part = PartDraft(role, value.bits, self.module.where(node))
                self.emit(
                    [part],
                    self.module.where(node),
                    name=name,
                    evidence="shape",
                    followed=role == "system",
                    use=value.use,
                )
        elif isinstance(value, Many) and any(_is_message(i.value) for i in value.items):
            reading = Reading()
            parts = parts_of(value, reading)
            if sum(size(p.bits) for p in parts) >= 20:
                self.emit(
                    parts,
                    self.module.where(node),
                    name=name,
                    evidence="shape",
                    followed=parts[-1].placeholder,
                )
        elif isinstance(value, Made) and (value.tail in CLASSES or value.tail in METHODS):
            part_made = message(value, Reading(), self.module.where(node))
            if part_made is not None and natural(_shown(part_made.bits)):
                self.emit(
                    [part_made],
                    self.module.where(node),
                    name=name,
                    evidence="shape",
                    followed=part_made.role == "system",
                )

    def _said(self, name: str) -> bool:
        """Whether a text is for people: an error that is raised, a line that is logged."""
        if self.function is None or not re.search(r"msg|message|error|text|reason|warning", name):
            return False
        return bool(
            re.search(
                rf"raise\b[^\n]*\(\s*{re.escape(name)}\b|\b(?:warn|log|print|error|debug|info|exception|fail|skip|"
                rf"warning|critical|abort|exit)\w*\(\s*(?:[\w.]+,\s*)?{re.escape(name)}\b",
                self.module.code(self.function.node),
            )
        )

    def returned(self, value: Value, node: ast.expr) -> None:
        if self.function is None:
            return
        if any(DYNAMIC.search(d) for d in self.function.decorators) and isinstance(value, Str):
            system = not any("user_prompt" in d or "mcp" in d for d in self.function.decorators)
            part = PartDraft("system" if system else "user", value.bits, self.module.where(node))
            if size(value.bits):
                self.emit(
                    [part],
                    self.module.where(node),
                    name=self.function.name,
                    evidence="framework",
                    followed=system,
                )
            return
        self.considered(self.function.name, value, node)

    def decorated(self, function: Function, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        return

    def class_made(self, cls: Class, node: ast.ClassDef) -> None:
        """A DSPy signature: docstring and fields are the system message, inputs come last."""
        if not any(b in ("dspy.Signature", "Signature") for b in cls.bases):
            return
        base = cls.node
        system: list[Lit | Slot] = []
        first = base.body[0] if base.body else None
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            system += self.module.constant(first.value)
        inputs: list[Lit | Slot] = []
        for statement in base.body:
            if not isinstance(statement, ast.AnnAssign | ast.Assign) or statement.value is None:
                continue
            target = (
                statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            )
            code = ast.unparse(statement.value)
            where = self.module.where(statement)
            if isinstance(statement.value, ast.Call):
                for k in statement.value.keywords:
                    if k.arg in ("desc", "description"):
                        made = self.value(k.value)
                        if isinstance(made, Str):
                            system += made.bits
            if "InputField" in code:
                name = name_of(target)
                inputs.append(Slot(name, name, guess(name), where))
        parts = [
            PartDraft("system", tight(system), self.module.where(node)),
            PartDraft("user", tuple(inputs), None),
        ]
        if size(parts[0].bits):
            self.emit(parts, self.module.where(node), name=node.name, evidence="framework")

    # -- by framework ----------------------------------------------------------------------------

    def framework_call(
        self, dotted: str, node: ast.Call, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> Value | None:
        where = self.module.where(node)
        made = Made(dotted, args, kwargs, where, Use())
        if _TEMPLATES.search(dotted):
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
        if not _TEMPLATES.search(base.kind):
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

    # -- by what is called -----------------------------------------------------------------------

    def sent(
        self, node: ast.Call, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> bool:
        api = apis.api_of(callee, set(kwargs))
        if api is not None:
            return self._request(node, api, callee, args, kwargs)
        if apis.AGENTS.search(callee):
            return self._agent(node, callee, args, kwargs)
        tail = callee.rpartition(".")[2]
        if (
            "messages" in kwargs
            and self._is_chat(kwargs["messages"])
            and not _TEMPLATES.search(callee)
        ):
            return self._request(
                node, apis.Api("unknown", ("messages",), ("system",)), callee, args, kwargs
            )
        for key in ("json", "data", "body", "payload"):
            body = kwargs.get(key)
            if (
                isinstance(body, Dict)
                and body.get("messages", "prompt", "contents", "input") is not None
                and (body.get("model", "messages") is not None)
            ):
                return self._body(node, body)
        if _RUN.match(tail) and args and isinstance(node.func, ast.Attribute):
            return self._run(node, callee, args, kwargs)
        if (
            args
            and self._is_chat(args[0])
            and not _TEMPLATES.search(callee)
            and tail not in _BUILDERS
        ):
            return self._request(
                node, apis.Api("unknown", (), (), first=True), callee, args, kwargs
            )
        self._by_keyword(node, callee, args, kwargs)
        if self.program.alone and not self.program.wants:
            self.program.wants = self._leaves(node, callee, (*args, *kwargs.values()))
        return False

    def _leaves(self, node: ast.Call, callee: str, values: tuple[Value, ...]) -> bool:
        """Whether text that may be a prompt goes to a function of another module."""
        func: ast.expr = node.func
        while isinstance(func, ast.Attribute):
            func = func.value
        if isinstance(func, ast.Call) or not isinstance(func, ast.Name):
            return False
        if func.id != "self" and func.id not in self.module.imports and func.id not in self.env:
            return False
        likely = bool(_MODEL.search(callee))
        return any(
            isinstance(v, Str)
            and size(v.bits) >= 30
            and (score(_shown(v.bits)) >= 2 or (likely and natural(_shown(v.bits), 8)))
            for v in values
        )

    def _is_chat(self, value: Value) -> bool:
        return isinstance(value, Many) and any(_is_message(i.value) for i in value.items)

    def _run(
        self, node: ast.Call, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> bool:
        """`llm.invoke(...)`: a list of messages, a text, or the state of a graph."""
        first = args[0]
        assert isinstance(node.func, ast.Attribute)
        base = name_of(node.func.value) or callee
        if isinstance(first, Dict):
            inner = first.get("messages")
            if inner is not None and self._is_chat(inner):
                first = inner
            else:
                return False
        likely = bool(_MODEL.search(base))
        if (
            self._is_chat(first)
            or (
                likely
                and isinstance(first, Str)
                and score(_shown(first.bits)) >= 1
                and size(first.bits) >= 40
            )
            or (likely and isinstance(first, Many | Thing) and ops_of(first))
        ):
            api = apis.Api("langchain", (), (), first=True)
        else:
            return False
        return self._request(node, api, callee, (first, *args[1:]), kwargs)

    def _body(self, node: ast.Call, body: Dict) -> bool:
        named = {e.key: e.value for e in body.entries if e.key}
        api = apis.Api(
            "unknown", ("messages", "prompt", "contents", "input"), ("system", "instructions")
        )
        return self._request(node, api, "post", (), named)

    def _agent(
        self, node: ast.Call, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> bool:
        """Constructors of agents: their system text is followed by all messages of a run."""
        bits: list[PartDraft] = []
        for key in (*apis.SYSTEM_WORDS, *apis.AGENT_WORDS):
            value = kwargs.get(key)
            if value is None:
                continue
            if isinstance(value, Made) and value.tail in CLASSES:
                part = message(value, Reading(), value.where)
                if part is not None and size(part.bits):
                    bits.append(part)
                continue
            if isinstance(value, Fn) and key in (
                "prompt",
                "instructions",
                "system_prompt",
                "state_modifier",
            ):
                self._callable_prompt(value)
                continue
            if isinstance(value, Str | Thing) and (
                key in apis.SYSTEM_WORDS or isinstance(value, Str)
            ):
                if (
                    isinstance(value, Str)
                    and key in ("role", "goal", "description")
                    and "Agent" not in callee
                ):
                    continue
                entry = (
                    next(k.value for k in node.keywords if k.arg == key)
                    if any(k.arg == key for k in node.keywords)
                    else node
                )
                where = self.module.where(entry)
                bits.append(PartDraft("system", content_bits(value, Reading(), where), where))
        if len(bits) > 1 and all(p.role == "system" for p in bits):
            merged = tuple(b for p in bits for b in p.bits)
            bits = [PartDraft("system", merged, bits[0].where, marker=bits[0].marker)]
        tools = kwargs.get("tools")
        if tools is None and "create" in callee and len(args) > 1:
            tools = args[1]
        use = None
        if tools is not None:
            use = tools_use(tools, _node_of(node, "tools", 1), self)
        if not bits and use is None:
            return False
        request = RequestDraft(
            "langchain" if "create_" in callee else "unknown",
            self.module.where(node),
            use,
            in_loop=bool(self.loops),
        )
        if (
            not sum(size(p.bits) for p in bits)
            and not any(isinstance(b, Slot) and b.param for p in bits for b in p.bits)
            and use is None
        ):
            return False
        self.emit(
            bits, self.module.where(node), evidence="framework", followed=True, request=request
        )
        return True

    def _callable_prompt(self, value: Fn) -> None:
        from agentkv.lint.formats.python.frame import run_function

        function = self.program.function(value.owner)
        if function is None:
            return
        frame = run_function(self.program, function)
        for made, node in frame.returns:
            if isinstance(made, Str) and size(made.bits) and isinstance(node, ast.expr):
                part = PartDraft("system", made.bits, frame.module.where(node))
                frame.emit(
                    [part],
                    frame.module.where(node),
                    name=function.name,
                    evidence="framework",
                    followed=True,
                )

    def _by_keyword(
        self, node: ast.Call, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> None:
        """`ask(system_prompt=f"...")`: what an argument is called."""
        for key, value in kwargs.items():
            if key in _NO_WORDS or not isinstance(value, Str):
                continue
            if not strong_name(key) and key not in apis.SYSTEM_WORDS:
                continue
            entry = _node_of(node, key, None)
            if entry is not None:
                self.considered(key, value, entry)

    def _request(
        self,
        node: ast.Call,
        api: apis.Api,
        callee: str,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
    ) -> bool:
        reading = Reading()
        where = self.module.where(node)
        parts: list[PartDraft] = []
        system = next((kwargs[k] for k in api.system if k in kwargs), None)
        config = kwargs.get("config")
        if isinstance(config, Made | Dict):
            inner = (
                config.kwargs
                if isinstance(config, Made)
                else {e.key: e.value for e in config.entries if e.key}
            )
            system = system or inner.get("system_instruction")
            kwargs = {**{k: v for k, v in inner.items() if isinstance(k, str)}, **kwargs}
        if api.name == "bedrock" and "body" in kwargs:
            return self._invoked(node, kwargs["body"])
        if system is not None and system != NONE:
            parts += [_as_system(p) for p in parts_of(system, reading, "system")]
        value: Value | None = None
        main: ast.expr | None = None
        for key in api.messages:
            if key in kwargs:
                value, main = kwargs[key], _node_of(node, key, None)
                break
        if value is None and api.first and args:
            value, main = args[0], node.args[0] if node.args else None
        if value is not None:
            if isinstance(value, Thing) and value.fn == "template":
                value = None
            elif isinstance(value, Many) and api.name == "gemini" and not self._is_chat(value):
                parts.append(
                    PartDraft(
                        "user",
                        tuple(
                            b
                            for i in value.items
                            for p in parts_of(i.value, reading)
                            for b in p.bits
                        ),
                        where,
                    )
                )
            else:
                if (
                    isinstance(value, Thing | Str)
                    and not isinstance(value, Many)
                    and "prompt" in api.messages[:1]
                ):
                    parts.append(
                        PartDraft(
                            "user",
                            content_bits(value, reading, self.module.where(main) if main else None),
                            where,
                        )
                    )
                elif isinstance(value, Thing):
                    if value.param or ops_of(value) or "history" in value.facts.traits or parts:
                        parts += parts_of(
                            Many(
                                (
                                    Item(
                                        value,
                                        self.module.where(main) if main else where,
                                        spread=True,
                                    ),
                                )
                            ),
                            reading,
                        )
                else:
                    parts += parts_of(value, reading)
        sources = [v for v in (value, system) if v is not None]
        ops = tuple(dict.fromkeys(op for v in sources for op in self._ops(v)))
        ops = (*ops, *self._summaries(parts), *self._rebuilt(parts))
        followed = self._followed(parts, main)
        cached = _top_marker(kwargs, node, self)
        request = RequestDraft(
            api.name if api.name != "unknown" else _vendor(callee),
            where,
            self._tools(node, kwargs),
            tuple(self._settings(node, kwargs)),
            tuple((where, op) for op in ops),
            tuple(dict.fromkeys([*cached, *reading.markers, *self._tool_markers(kwargs, reading)])),
            tuple(reading.ttls),
            self.fan > 0,
            bool(self.loops),
            as_text(kwargs.get("model", kwargs.get("modelId"))),
        )
        self.emit(parts, where, request=request, followed=followed)
        if main is not None and self.key_of(main) is not None:
            self.sent_lists.append((request, main))
        return True

    def later(self) -> None:
        """What is done to messages after they were sent matters to the next call."""
        for request, main in self.sent_lists:
            value = self.env.get(self.key_of(main) or "")
            if value is None:
                continue
            known = {op for _, op in request.ops}
            more = [op for op in dict.fromkeys(self._ops(value)) if op not in known]
            request.ops = (*request.ops, *((request.where, op) for op in more))

    def _invoked(self, node: ast.Call, body: Value) -> bool:
        """Bedrock's `invoke_model(body=json.dumps({...}))`."""
        for k in node.keywords:
            if k.arg != "body":
                continue
            inner: ast.expr = k.value
            if isinstance(inner, ast.Call) and name_of(inner.func).endswith("dumps") and inner.args:
                inner = inner.args[0]
            made = self.value(inner)
            if isinstance(made, Dict):
                named = {e.key: e.value for e in made.entries if e.key}
                api = apis.Api("bedrock", ("messages", "prompt", "inputText"), ("system",))
                return self._request(node, api, "invoke_model", (), named)
        return False

    def _ops(self, value: Value) -> list[HistoryOp]:
        return [op for v in walk(value) for op in ops_of(v)]

    def _summaries(self, parts: list[PartDraft]) -> list[HistoryOp]:
        if not any(p.placeholder for p in parts) and len(parts) < 2:
            return []
        for part in parts[:1]:
            if part.role != "system":
                continue
            for bit in part.bits:
                if isinstance(bit, Slot) and (
                    "summary" in bit.facts.traits or re.search(r"summary", bit.name, re.I)
                ):
                    if bit.facts.level in ("build", "deploy"):
                        continue
                    return [self._op("summarised_into_head", bit)]
        return []

    def _rebuilt(self, parts: list[PartDraft]) -> list[HistoryOp]:
        for part in parts[:1]:
            if part.role != "system":
                continue
            for bit in part.bits:
                if isinstance(bit, Slot) and bit.facts.why.endswith("read at each call"):
                    return [self._op("rebuilt_each_call", bit, bit.facts.why)]
        return []

    def _op(self, kind: HistoryOpKind, bit: Slot, detail: str = "") -> HistoryOp:
        where = bit.where if bit.where and bit.where.module == self.module.path else None
        place = Slice(where.start, where.end) if where else Slice(0, 0)
        return HistoryOp(
            kind=kind, slice=place, detail=detail or bit.name, in_loop=bool(self.loops)
        )

    def _followed(self, parts: list[PartDraft], main: ast.expr | None) -> bool:
        if parts and parts[-1].placeholder:
            return True
        key = self.key_of(main) if main is not None else None
        if key is None:
            return False
        grows = re.compile(
            rf"\b{re.escape(key)}\s*(?:\.(?:append|extend)\(|\+=|=\s*{re.escape(key)}\s*\+)"
        )
        return any(
            isinstance(loop, ast.stmt) and grows.search(self.module.code(loop))
            for loop in self.loops
        )

    def _tools(self, node: ast.Call, kwargs: dict[str, Value]) -> ToolsUse | None:
        for key in ("tools", "toolConfig", "functions", "tool_config"):
            if key in kwargs and kwargs[key] != NONE:
                value = kwargs[key]
                if isinstance(value, Dict):
                    value = value.get("tools", "functionDeclarations") or value
                return tools_use(value, _node_of(node, key, None), self)
        return None

    def _tool_markers(self, kwargs: dict[str, Value], reading: Reading) -> list[Where]:
        found: list[Where] = []
        tools = kwargs.get("tools")
        if isinstance(tools, Many):
            for item in tools.items:
                if isinstance(item.value, Dict):
                    entry = item.value.entry("cache_control")
                    if entry is not None and entry.where is not None:
                        found.append(entry.where)
                        ttl = (
                            as_text(entry.value.get("ttl"))
                            if isinstance(entry.value, Dict)
                            else None
                        )
                        reading.ttls.insert(0, ttl or "5m")
        return found

    def _settings(self, node: ast.Call, kwargs: dict[str, Value]) -> list[SettingDraft]:
        found: list[SettingDraft] = []
        every = dict(kwargs)
        for nested in ("extra_body", "extra_headers"):
            value = kwargs.get(nested)
            if isinstance(value, Dict):
                every |= {e.key: e.value for e in value.entries if e.key}
        for name in apis.SETTINGS:
            if name not in every:
                continue
            value = every[name]
            entry = _node_of(node, name, None)
            where = (
                self.module.where(entry)
                if entry is not None
                else self._entry_where(kwargs, name, node)
            )
            text = as_text(value)
            found.append(SettingDraft(name, where, self._setting_facts(name, value, entry), text))
        return found

    def _setting_facts(self, name: str, value: Value, entry: ast.expr | None) -> Facts:
        if isinstance(entry, ast.IfExp):
            return self.test(entry.test).plus("conditional")
        facts = value.facts
        if isinstance(value, Obj | Cls | Fn | Lib):
            return fact("build", "a class")
        if isinstance(value, Thing) and facts.level == "unknown" and value.name:
            named = guess(value.name)
            if named.level == "unknown" and name in ("model", "modelId"):
                return replace(facts, why=facts.why or f"`{value.name}`")
        return facts

    def _entry_where(self, kwargs: dict[str, Value], name: str, node: ast.Call) -> Where:
        for nested in ("extra_body", "extra_headers"):
            value = kwargs.get(nested)
            entry = value.entry(name) if isinstance(value, Dict) else None
            if entry is not None and entry.where is not None:
                return entry.where
        return self.module.where(node)


_BUILDERS = frozenset(
    [
        "append",
        "extend",
        "insert",
        "len",
        "list",
        "tuple",
        "sorted",
        "dumps",
        "deepcopy",
        "copy",
        "print",
        "str",
        "repr",
        "isinstance",
        "add",
        "from_messages",
        "zip",
        "enumerate",
        "count_tokens",
        "num_tokens_from_messages",
        "assertEqual",
        "from_examples",
        "map",
        "filter",
        "set",
        "reversed",
        "any",
        "all",
        "sum",
        "update",
        "parametrize",
        "ValueError",
    ]
)


def _is_message(value: Value) -> bool:
    if isinstance(value, Dict):
        role = as_text(value.get("role")) if value.get("role") is not None else None
        return role in (
            "system",
            "developer",
            "user",
            "assistant",
            "tool",
            "human",
            "ai",
            "model",
        ) and (value.get("content", "parts") is not None)
    if isinstance(value, Made):
        return (
            value.tail in CLASSES or value.tail in METHODS or value.tail in ("MessagesPlaceholder",)
        )
    if isinstance(value, Many) and value.kind == "tuple" and len(value.items) == 2:
        role = as_text(value.items[0].value)
        return role in ("system", "user", "human", "assistant", "ai", "developer") and isinstance(
            value.items[1].value, Str | Thing
        )
    return False


def _as_system(part: PartDraft) -> PartDraft:
    return replace(part, role="system", placeholder=False)


def _shown(bits: Bits) -> str:
    """The text with its slots as `{}`, for judging by looks."""
    return "".join(b.value if isinstance(b, Lit) else (text_of(b.inner) or "{}") for b in bits)


def _node_of(node: ast.Call, key: str, position: int | None) -> ast.expr | None:
    for k in node.keywords:
        if k.arg == key:
            return k.value
    if position is not None and len(node.args) > position:
        return node.args[position]
    return None


def _syntax(made: Made) -> fields.Syntax:
    word = as_text(made.kwargs.get("template_format"))
    if "Builder" in made.kind or "Rich" in made.kind or word == "jinja2":
        return "jinja"
    return "mustache" if word == "mustache" else "format"


def _vendor(callee: str) -> str:
    low = callee.lower()
    for word in ("anthropic", "openai", "ollama", "litellm", "bedrock", "gemini", "langchain"):
        if word in low:
            return word
    return "unknown"


def _top_marker(kwargs: dict[str, Value], node: ast.Call, frame: Base) -> list[Where]:
    """`cache_control=` as an argument of the request itself."""
    if "cache_control" not in kwargs:
        return []
    entry = _node_of(node, "cache_control", None)
    return [frame.module.where(entry)] if entry is not None else []
