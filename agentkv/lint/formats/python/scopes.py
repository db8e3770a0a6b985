"""What a name holds, and what an attribute of a class holds."""

from __future__ import annotations

import ast

from agentkv.lint.formats.python.base import Base
from agentkv.lint.formats.python.facts import Facts, Where, fact
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.imports import imported
from agentkv.lint.formats.python.merge import either
from agentkv.lint.formats.python.module import Module
from agentkv.lint.formats.python.values import (
    Cls,
    Fn,
    Obj,
    Str,
    Thing,
    Value,
)


class Scopes(Base):
    """Looks names up: here, around, in the module, in other modules."""

    def look(self, name: str) -> Value:
        """What a name holds here."""
        frame: Base | None = self
        while frame is not None:
            if name in frame.env:
                # A module's own value was made when it was imported.
                later = frame is not self and frame.owner.endswith(":") and not frame.main_guard
                return imported(frame.env[name]) if later else frame.env[name]
            frame = frame.outer
        if name in ("__file__", "__name__", "__doc__"):
            return Thing(fact("build", name), name)
        found = self._module_name(name)
        if found is not None:
            return found
        return Thing(guess(name).reading(name), name)

    def _module_name(self, name: str) -> Value | None:
        base = self.frame_of_module(self.module)
        if base is not self:
            base.demand(name)
            if name in base.env:
                return imported(base.env[name])
        if name in self.module.classes:
            return Cls(self.module.classes[name].owner)
        if name in self.module.functions:
            return Fn(self.module.functions[name].owner)
        if name in self.module.imports:
            return self.library(self.module.imports[name])
        for star in self.module.stars if len(self.module.stars) <= 4 else ():
            found = self.program.find(star, self.module)
            if found is not None:
                value = self.exported(found, name)
                if value is not None:
                    return value
        return None

    def attribute_of(
        self, cls_owner: str, name: str, seen: frozenset[str] = frozenset()
    ) -> Value | None:
        """`self.name` in a class: from its body, its `__init__`, its bases."""
        cls = self.program.cls(cls_owner)
        module = self.program.module_of(cls_owner)
        if cls is None or module is None or cls_owner in seen:
            return None
        qualified = f"{cls_owner.rpartition(':')[2]}.{name}"
        if qualified in module.functions:
            method = module.functions[qualified]
            if any(
                d.rpartition(".")[2] in ("property", "cached_property") for d in method.decorators
            ):
                return self.call_function(method, (), {}, Where(module.path, 0, 0))
            return Fn(method.owner, (Obj(cls_owner),))
        made = cls.attributes.get(name)
        if made:
            return self._attribute_value(module, made, name)
        for base in cls.bases:
            owner = self._class_owner(base, module)
            if owner:
                found = self.attribute_of(owner, name, seen | {cls_owner})
                if found is not None:
                    return found
        return None

    def _class_owner(self, base: str, module: Module) -> str | None:
        if base in module.classes:
            return module.classes[base].owner
        head, _, rest = base.partition(".")
        dotted = module.imports.get(head)
        if dotted is None:
            return None
        found = self.program.lookup(f"{dotted}.{rest}" if rest else dotted, module)
        if found and found[1] in found[0].classes:
            return found[0].classes[found[1]].owner
        return None

    def _attribute_value(
        self, module: Module, made: list[tuple[ast.expr, str | None]], name: str
    ) -> Value:
        values: list[Value] = []
        later = False
        for node, owner in made:
            if owner is None:
                base = self.frame_of_module(module)
                values.append(imported(base.value(node)))
                continue
            frame = self.program.frames.get(owner)
            key = f"self.{name}"
            if frame is None and len(self.program.frames) < 20_000:
                function = self.program.function(owner)
                if function is not None:
                    frame = self.frame_of(function)
            if not owner.endswith((".__init__", ".__post_init__", ".setup", ".__new__")):
                later = True
            if frame is not None and key in frame.env:
                values.append(frame.env[key])
        if not values:
            return Thing(guess(name), name)
        best = values[0]
        for other in values[1:]:
            best = either(best, other, Facts("unknown", why="assigned in several places"))
        if later and isinstance(best, Thing) and best.facts.level in ("build", "deploy"):
            return Thing(guess(name), name)
        if isinstance(best, Str) and not best.bits and guess(name).level != "unknown":
            return Thing(guess(name), name)  # empty at first: somebody fills it in
        return best
