"""Prompts that are found by what they look like."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python.base import Base
from agentkv.lint.formats.python.bits import Bits, Lit, Slot, as_text, size, text_of, tight
from agentkv.lint.formats.python.drafts import Draft, PartDraft, RequestDraft
from agentkv.lint.formats.python.facts import Where
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.imports import computed
from agentkv.lint.formats.python.messages import (
    CLASSES,
    METHODS,
    Reading,
    message,
    parts_of,
)
from agentkv.lint.formats.python.module import Class, Function
from agentkv.lint.formats.python.shapes import is_prompt, natural, role_of
from agentkv.lint.formats.python.values import (
    Dict,
    Made,
    Many,
    Str,
    Thing,
    Use,
    Value,
    name_of,
)
from agentkv.lint.template import Role

DYNAMIC = re.compile(
    r"(?:dynamic_prompt|\.system_prompt|\.instructions|\.user_prompt|\.prompt\(|^prompt$|mcp\.prompt)"
)

NO_WORDS = frozenset({"help", "description", "usage", "epilog", "doc", "message_help"})


class Looks(Base):
    """Records texts that are prompts by their names and words."""

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
        if self.function is None and request is None and not self.loops and not self.main_guard:
            # A template of a module: what is in it was computed when the module was imported.
            parts = [replace(p, bits=computed(p.bits)) for p in parts]
        parts = [replace(p, bits=_instructions(p.bits)) if p.role == "system" else p for p in parts]
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

    def considered(self, name: str, value: Value, node: ast.expr) -> None:
        if name in NO_WORDS:
            return
        if isinstance(value, Str):
            if size(value.bits) < 40 or self._said(name):
                return
            text = shown_text(value.bits)
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
            if part_made is not None and natural(shown_text(part_made.bits)):
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

    def _is_chat(self, value: Value) -> bool:
        return isinstance(value, Many) and any(_is_message(i.value) for i in value.items)


def _instructions(bits: Bits) -> Bits:
    """A system message's `prompt` is no question of a user: nobody knows how often it changes."""
    return tuple(
        replace(b, facts=replace(b.facts.minus("question"), level="unknown"))
        if isinstance(b, Slot)
        and not b.facts.known
        and b.name.rpartition(".")[2] == "prompt"
        and "question" in b.facts.traits
        else b
        for b in bits
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
            value.tail in CLASSES
            or value.tail in METHODS
            or value.tail == "MessagesPlaceholder"
            or (value.tail in ("ChatMessage", "Message", "ModelMessage") and "role" in value.kwargs)
        )
    if isinstance(value, Many) and value.kind == "tuple" and len(value.items) == 2:
        role = as_text(value.items[0].value)
        return role in ("system", "user", "human", "assistant", "ai", "developer") and isinstance(
            value.items[1].value, Str | Thing
        )
    return False


def shown_text(bits: Bits) -> str:
    """The text with its slots as `{}`, for judging by looks."""
    return "".join(b.value if isinstance(b, Lit) else (text_of(b.inner) or "{}") for b in bits)
