"""Settings of a run: the nearest `agentkv.toml` or `pyproject.toml`, and what the caller overrides.

Keys are written with dashes, as in other tools:

    [tool.agentkv.lint]          # in pyproject.toml; `[lint]` in agentkv.toml
    target = "vllm"
    ignore = ["KV3"]
    stability.brand = "deploy"

A key that nobody knows is an error, so that a typing mistake never passes for a setting.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from agentkv.lint.context import Traffic
from agentkv.lint.finding import Severity
from agentkv.lint.globs import matches
from agentkv.lint.rule import Rule, Selection, matching
from agentkv.lint.template import Level

NAMES = ("agentkv.toml", "pyproject.toml")
FailOn = Literal["error", "warning", "info", "never"]


class ConfigError(ValueError):
    """The settings cannot be used; the message names the file, the key and what is possible."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """What a run does. Everything here has a key of the same name in the configuration file."""

    select: tuple[str, ...] = ("default",)
    """Codes, prefixes of codes (`KV1`), names, `default` or `ALL`."""
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: dict[str, tuple[str, ...]] = {}
    """Globs of paths below the root, and the rules that are off there."""
    severity: Severity = "warning"
    """The least severity that is reported."""
    severities: dict[str, Severity] = {}
    """How grave the findings of a rule are, whatever they cost: codes, prefixes or names of rules.
    The most exact one counts. In a file, `severity` may be this table too."""
    fail_on: FailOn = "warning"
    """The least severity that makes the exit status 1."""
    max_loss: int | None = None
    """Tokens a call that may be lost in all; more makes the exit status 1."""
    min_tokens: int = 64
    """Fewer static tokens behind a slot are not worth a finding."""
    target: str = "agentkv"
    """Whose cache the cost is stated for."""
    tokenizer: str | None = None
    """A `tokenizer.json` (or a folder with one), for exact counts."""
    traffic: dict[str, Any] = {}
    """Changes to the traffic mix: the fields of `Traffic`."""
    stability: dict[str, Level] = {}
    """Levels of names; they overrule every guess."""
    sinks: tuple[str, ...] = ()
    """Functions of the project that send a prompt (`mypkg.llm.ask`)."""
    exclude: tuple[str, ...] = ()
    """Globs of paths that are left out, beside what git ignores."""
    include: tuple[str, ...] = ()
    """Globs of files that are looked at although their suffix is none of a prompt's."""
    formats: dict[str, str] = {}
    """Globs of paths and the format that they are read as, whatever they look like."""
    baseline: str | None = None
    """A file with known findings, which are not reported."""
    jobs: int = 0
    """Processes; 0 is one for each processor."""
    cache: bool = True
    cache_dir: str | None = None

    # -- what the parts of a run want to know ------------------------------------------------------

    def rules(self) -> list[Rule]:
        """The rules of this run. Raises `ConfigError` for codes that do not exist."""
        try:
            return Selection((*self.select, *self.extend_select), self.ignore).rules()
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def severity_of(self) -> dict[str, Severity]:
        """What `severities` says, by code. Raises `ConfigError` for rules that do not exist."""
        found: dict[str, Severity] = {}
        ranked: list[tuple[str, list[type[Rule]]]] = []
        for word in self.severities:
            try:
                ranked.append((word, matching(word)))
            except ValueError as error:
                raise ConfigError(f"`severity.{word}`: {error}") from None
        # The fewer rules a word stands for, the more exact it is.
        for word, rules in sorted(ranked, key=lambda r: -len(r[1])):
            found |= {rule.code: self.severities[word] for rule in rules}
        return found

    def mix(self) -> Traffic:
        """The traffic that costs are stated for."""
        given = {key.replace("-", "_"): value for key, value in self.traffic.items()}
        known = {f.name for f in fields(Traffic)}
        if extra := sorted(set(given) - known):
            raise ConfigError(
                f"unknown key `traffic.{extra[0]}`; known: {', '.join(sorted(known))}."
            )
        base = Traffic()
        changes = given.pop("changes", {})
        if not isinstance(changes, Mapping):
            raise ConfigError("`traffic.changes` is a table of levels and shares.")
        for level, share in changes.items():
            if level not in base.changes:
                raise ConfigError(
                    f"unknown level `traffic.changes.{level}`; known: {', '.join(base.changes)}."
                )
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise ConfigError(f"`traffic.changes.{level}` is a share from 0 to 1.")
        for name, value in given.items():
            default = getattr(base, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise ConfigError(f"`traffic.{name.replace('_', '-')}` is a number from 0 on.")
            if isinstance(default, int) and not isinstance(value, int):
                raise ConfigError(f"`traffic.{name.replace('_', '-')}` is a whole number.")
        return Traffic(changes={**base.changes, **changes}, **given)

    def off(self, path: str) -> frozenset[str]:
        """Codes that `per-file-ignores` switches off for a path below the root."""
        return frozenset(
            rule.code
            for glob, words in self.per_file_ignores.items()
            if matches(glob, path)
            for word in words
            for rule in matching(word)
        )

    def format_of(self, path: str) -> str | None:
        """The format that the configuration sets for a path below the root."""
        return next((name for glob, name in self.formats.items() if matches(glob, path)), None)

    def check(self) -> None:
        """Raises `ConfigError` where a value names something that does not exist."""
        from agentkv.lint.formats import formats
        from agentkv.lint.target import target

        self.rules()
        self.severity_of()
        self.mix()
        try:
            target(self.target)
            for words in self.per_file_ignores.values():
                for word in words:
                    matching(word)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        known = {f.name for f in formats()}
        for glob, name in self.formats.items():
            if name not in known:
                raise ConfigError(
                    f"unknown format {name!r} for {glob!r}; known: {', '.join(sorted(known))}."
                )
        if self.min_tokens < 0:
            raise ConfigError("`min-tokens` is a number from 0 on.")

    def digest(self) -> str:
        """A hash of every setting that findings depend on."""
        of_output = ("severity", "fail_on", "max_loss", "baseline", "jobs", "cache", "cache_dir")
        values = {f: getattr(self, f) for f in self.__struct_fields__ if f not in of_output}
        return blake2b(msgspec.json.encode(values, order="sorted"), digest_size=16).hexdigest()


class Found(msgspec.Struct, frozen=True):
    """A configuration, the file that it is from (None: defaults), and the root of the project."""

    config: Config
    file: Path | None
    root: Path


def load(
    start: Path, *, file: Path | None = None, isolated: bool = False, **overrides: Any
) -> Found:
    """The configuration for `start`, from `file` or the nearest one above, with `overrides`.

    Overrides that are None are not given. Raises `ConfigError`.
    """
    start = start.absolute()
    if isolated:
        table, source = {}, None
    elif file is not None:
        table, source = _table(file, needed=True) or {}, file
    else:
        table, source = _nearest(start)
    root = _root(start, source)
    given = {name.replace("_", "-"): v for name, v in overrides.items() if v is not None}
    where = str(source) if source is not None else "the settings"
    config = parse({**_split_severity(table), **given}, where)
    config.check()
    return Found(config, source, root)


def parse(table: Mapping[str, Any], where: str) -> Config:
    """A table of a configuration file as settings. Raises `ConfigError` naming `where`."""
    try:
        return msgspec.convert(_plain(_split_severity(table)), Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_told(str(error))}") from None


def _split_severity(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """`severity = { KV101 = "warning", least = "info" }` as the two settings that it stands for."""
    given = table.get("severity")
    if not isinstance(given, Mapping):
        return table
    rest = {k: v for k, v in table.items() if k != "severity"}
    named = {k: v for k, v in given.items() if k != "least"}
    if "least" in given:
        rest["severity"] = given["least"]
    more = rest.get("severities", {})
    return {**rest, "severities": {**more, **named} if isinstance(more, Mapping) else more}


def _told(message: str) -> str:
    unknown = re.search(r"unknown field `(.+?)`", message)
    if unknown:
        known = ", ".join(sorted(Config.__struct_encode_fields__))
        return f"unknown key `{unknown[1]}` of the lint settings; known: {known}."
    at = re.search(r"^(.*) - at `\$\.?(.*)`$", message)
    if not at:
        return message
    levels = f" (levels: {', '.join(get_args(Level))})" if at[2].startswith("stability") else ""
    return f"`{at[2]}`: {at[1][0].lower()}{at[1][1:]}{levels}."


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def _nearest(start: Path) -> tuple[dict[str, Any], Path | None]:
    folder = start if start.is_dir() else start.parent
    for above in (folder, *folder.parents):
        for name in NAMES:
            path = above / name
            if path.is_file() and (table := _table(path, needed=False)) is not None:
                return table, path
    return {}, None


def _table(path: Path, *, needed: bool) -> dict[str, Any] | None:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if not needed and path.name == "pyproject.toml":
            return None  # other tools will say so; it is not ours to refuse
        raise ConfigError(f"{path}: not valid TOML: {error}.") from None
    if path.name == "pyproject.toml":
        tool = data.get("tool", {})
        ours = tool.get("agentkv", {}) if isinstance(tool, dict) else {}
        table = ours.get("lint") if isinstance(ours, dict) else None
        if table is None and needed:
            raise ConfigError(f"{path}: has no [tool.agentkv.lint] table.")
    else:
        if extra := sorted(set(data) - {"lint"}):
            raise ConfigError(f"{path}: unknown key `{extra[0]}`; settings stand below [lint].")
        table = data.get("lint", {})
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{path}: the lint settings are a table.")
    return table


def _root(start: Path, source: Path | None) -> Path:
    if source is not None:
        return source.absolute().parent
    folder = start if start.is_dir() else start.parent
    for above in (folder, *folder.parents):
        if (above / ".git").exists() or (above / "pyproject.toml").is_file():
            return above
    return folder
