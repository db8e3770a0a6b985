"""The modules of a project that matter for the file at hand, found by import and by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agentkv.lint.formats.base import Project
from agentkv.lint.formats.python.facts import Where
from agentkv.lint.formats.python.module import Class, Function, Module
from agentkv.lint.formats.python.shapes import may_mention
from agentkv.lint.formats.python.values import Value

if TYPE_CHECKING:
    from agentkv.lint.formats.python.drafts import Draft
    from agentkv.lint.formats.python.frame import Frame

_MOST_BYTES = 256 << 10
_MOST_CALLERS = 40
_MOST_LOADED = 40
_MOST_FRAMES = 400


@dataclass(slots=True)
class Site:
    """A call of a project's function: what its parameters were given."""

    caller: str
    bound: dict[str, Value]
    where: Where
    in_loop: bool = False
    fan: bool = False
    """One of many calls that are started together."""


@dataclass(slots=True)
class Program:
    """Everything that was read so far in this project, by one worker."""

    project: Project
    modules: dict[str, Module | None] = field(default_factory=dict)
    frames: dict[str, Frame] = field(default_factory=dict)
    """By owner: functions that were looked through (and `path:` for a module's own body)."""
    sites: dict[str, list[Site]] = field(default_factory=dict)
    drafts: dict[str, list[Draft]] = field(default_factory=dict)
    """By path of the module whose code made them."""
    ran: set[str] = field(default_factory=set)
    outers: dict[str, Frame] = field(default_factory=dict)
    """By owner of a nested function: the frame in which it was defined."""
    alone: bool = False
    """Other modules are left alone: the first look at a file."""
    loads: int = 0
    runs: int = 0
    """Modules and functions that were looked into for the file at hand; both have a limit."""
    wants: bool = False
    """The first look saw text that goes to a function of another module."""
    _found: dict[tuple[str, str], str | None] = field(default_factory=dict)
    _texts: dict[str, str] | None = None
    _names: dict[str, list[Path]] | None = None

    # -- modules ---------------------------------------------------------------------------------

    def load(self, path: Path, text: str | None = None) -> Module | None:
        """The module at `path`; None when it cannot be read or parsed, or is very large."""
        key = str(path)
        if key not in self.modules:
            if text is None:
                if self.loads >= _MOST_LOADED:
                    return None
                self.loads += 1
            self.modules[key] = None
            try:
                if text is None:
                    if path.stat().st_size > _MOST_BYTES:
                        return None
                    # newline="" would do, but read_text has no such argument before 3.13.
                    text = path.read_bytes().decode("utf-8")
                self.modules[key] = Module(key, text, self.dotted(path))
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        return self.modules[key]

    def dotted(self, path: Path) -> str:
        """The import name of a file: packages above it as far as they have an `__init__`."""
        parts = [] if path.stem == "__init__" else [path.stem]
        folder = path.parent
        while (folder / "__init__.py").exists() and folder != folder.parent:
            parts.insert(0, folder.name)
            folder = folder.parent
        return ".".join(parts)

    def find(self, dotted: str, near: Module) -> Module | None:
        """The project's module with this import name, as `near` would import it."""
        if self.alone:
            return None
        folder = str(Path(near.path).parent)
        key = (dotted, folder)
        if key not in self._found:
            found = self._search(dotted, Path(folder), near)
            self._found[key] = str(found) if found else None
        path = self._found[key]
        return self.load(Path(path)) if path else None

    def _search(self, dotted: str, folder: Path, near: Module) -> Path | None:
        if not dotted or not re.fullmatch(r"[\w.]+", dotted):
            return None
        tail = Path(*dotted.split("."))
        depth = near.dotted.count(".") + (1 if near.path.endswith("__init__.py") else 0)
        top = folder
        for _ in range(depth):
            top = top.parent
        # From the importing file's own tree outwards: of two packages with one name under one root
        # the nearest is meant.
        root = self.project.root.absolute()
        above = [f for f in (top, *top.parents) if f.absolute().is_relative_to(root)]
        outer = [base for f in above for base in (f, f / "src", f / "lib")]
        for base in dict.fromkeys((top, folder, *outer, root, root / "src")):
            for path in (base / tail.with_suffix(".py"), base / tail / "__init__.py"):
                if path.exists():
                    return path
        return self._nearest(tail, folder)

    def _nearest(self, tail: Path, folder: Path) -> Path | None:
        """A module of this run whose path ends like the import, if it stands in no other package:
        the one that shares most folders with `folder` (none where two are as near)."""
        ends = (tail.with_suffix(".py").parts, (*tail.parts, "__init__.py"))
        if len(tail.parts) < 2:
            return None  # `import utils` may be anybody's
        found: list[tuple[int, Path]] = []
        for path in self._named(ends[0][-1], ends[1][-2:]):
            end = next((e for e in ends if path.parts[-len(e) :] == e), None)
            if end is None or (Path(*path.parts[: -len(end)]) / "__init__.py").exists():
                continue
            shared = 0
            pairs = zip(folder.absolute().parts, path.absolute().parts, strict=False)
            for mine, other in pairs:
                if mine != other:
                    break
                shared += 1
            found.append((shared, path))
        if not found:
            return None
        best = max(shared for shared, _ in found)
        nearest = [path for shared, path in found if shared == best]
        return nearest[0] if len(nearest) == 1 else None

    def _named(self, file: str, package: tuple[str, ...]) -> list[Path]:
        """Files of this run by their name, or by their folder's for an `__init__`."""
        if self._names is None:
            self._names = {}
            for path in self.project.files:
                key = path.parent.name + "/" if path.name == "__init__.py" else path.name
                self._names.setdefault(key, []).append(path)
        return [*self._names.get(file, []), *self._names.get(package[0] + "/", [])]

    def without(self, path: str) -> Program:
        """A new program that has parsed all that this one has, but for one module."""
        kept = {p: m for p, m in self.modules.items() if p != path}
        texts = self._texts
        if texts is not None:
            texts = {p: t for p, t in texts.items() if p != path}
        return Program(self.project, modules=kept, _found=self._found, _texts=texts)

    def begin(self) -> None:
        """A new file is at hand."""
        self.loads = self.runs = 0

    def may_run(self) -> bool:
        self.runs += 1
        return self.runs <= _MOST_FRAMES

    def forget(self, module: Module) -> None:
        """Drop what was found by looking through a module alone."""
        mine = f"{module.path}:"
        for table in (self.frames, self.sites, self.outers):
            for owner in [o for o in table if o.startswith(mine)]:
                del table[owner]
        self.drafts.pop(module.path, None)

    def lookup(self, dotted: str, near: Module) -> tuple[Module, str] | None:
        """Where a dotted name is defined in the project: its module, and the name in it."""
        head, _, name = dotted.rpartition(".")
        module = self.find(head, near) if head else None
        if module is not None and name:
            return module, name
        outer, _, cls = head.rpartition(".")
        if outer and (module := self.find(outer, near)) is not None:
            return module, f"{cls}.{name}"
        return None

    def function(self, owner: str) -> Function | None:
        path, _, name = owner.rpartition(":")
        module = self.modules.get(path)
        return module.functions.get(name) if module else None

    def cls(self, owner: str) -> Class | None:
        path, _, name = owner.rpartition(":")
        module = self.modules.get(path)
        return module.classes.get(name) if module else None

    def text_of(self, path: str, near: Module) -> str | None:
        """A text file of the project that code reads by a literal path."""
        for folder in (Path(near.path).parent, self.project.root):
            file = folder / path
            try:
                if file.is_file() and file.stat().st_size <= _MOST_BYTES:
                    return file.read_text(encoding="utf-8")
            except (OSError, ValueError):
                continue
        return None

    def overrides(self, method: Function) -> list[Function]:
        """The same method in subclasses of the same module."""
        module = self.module_of(method.owner)
        if module is None or method.cls is None:
            return []
        name = method.name
        base = method.cls.rpartition(":")[2]
        return [
            module.functions[f"{sub}.{name}"]
            for sub, cls in module.classes.items()
            if base in cls.bases and f"{sub}.{name}" in module.functions
        ]

    def module_of(self, owner: str) -> Module | None:
        return self.modules.get(owner.rpartition(":")[0])

    # -- who mentions a name ---------------------------------------------------------------------

    def texts(self) -> dict[str, str]:
        """Texts of the project's Python files that have anything to do with prompts."""
        if self._texts is None:
            self._texts = {}
            for path in self.project.files:
                if path.suffix != ".py":
                    continue
                try:
                    if path.stat().st_size > _MOST_BYTES:
                        continue
                    text = path.read_bytes().decode("utf-8")
                except (OSError, UnicodeDecodeError):
                    continue
                if may_mention(text):
                    self._texts[str(path)] = text
        return self._texts

    def mentions(self, name: str, near: Module) -> list[Module]:
        """Other modules whose text holds `name` as a word (none when there are very many)."""
        if len(name) < 4:
            return []
        word = re.compile(rf"(?<![\w]){re.escape(name)}(?![\w])")
        found = [p for p, text in self.texts().items() if name in text and word.search(text)]
        here = Path(near.path)
        others = [p for p in found if Path(p) != here]
        if len(others) > _MOST_CALLERS:
            return []
        return [m for p in others if (m := self.load(Path(p))) is not None]
