"""JSON schemas made safe for constrained decoding: vetted, bounded, and in one form.

What the grammar engine (llguidance) can promise is kept; what it cannot is refused with the path of
the keyword, never ignored. Annotations (titles, descriptions, examples) are dropped, since they
bind nothing. The order of properties is kept: documents have it too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, cast
from urllib.parse import unquote

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.run.grammar_builder import TIME_LIMIT, build
from agentkv.engine.run.grammar_cache import ByteLru
from agentkv.engine.run.schema_disjoint import disjoint
from agentkv.engine.run.schema_least import Least

MAX_BYTES = 256 * 1024
MAX_NESTING = 64
MAX_ENUM = 10_000
MAX_DEFS = 1_000
MAX_STRING = 65_536
"""Characters of a string without `maxLength`: more than any tool argument, less than for ever."""
MAX_ITEMS = 4_096
"""Items of an array without `maxItems`."""

GUIDANCE: dict[str, Any] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
"""One form of every document, which is `json.dumps`'s; no white space to get lost in."""

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
FORMATS = frozenset(
    [
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
        "unknown",
    ]
)
"""Formats that the output is held to."""
LOOSE_FORMATS = frozenset(
    [
        "path",
        "file-path",
        "directory-path",
        "password",
        "binary",
        "byte",
        "base64",
        "base64url",
        "json-string",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "float",
        "double",
        "decimal",
        "color",
        "multi-line",
        "markdown",
        "html",
    ]
)
"""Formats that say what a value is for; nothing is checked, as validators do not check them."""

REFUSED: dict[str, str] = {
    "not": "say what is allowed instead, with `enum`, `pattern` or `anyOf`",
    "if": "use `anyOf` with one complete schema for each case",
    "then": "use `anyOf` with one complete schema for each case",
    "else": "use `anyOf` with one complete schema for each case",
    "contains": "give the element its own property, or its own place in `prefixItems`",
    "minContains": "give the elements their own properties",
    "maxContains": "give the elements their own properties",
    "uniqueItems": "remove it and check the answer, or use one boolean property for each value",
    "dependentRequired": "use `anyOf` with one complete schema for each case",
    "dependentSchemas": "use `anyOf` with one complete schema for each case",
    "dependencies": "use `anyOf` with one complete schema for each case",
    "unevaluatedProperties": "use `additionalProperties: false` in each object",
    "unevaluatedItems": "use `items: false` with `prefixItems`",
    "$dynamicRef": "use `$ref`",
    "$recursiveRef": "use `$ref`",
    "extends": "use `allOf`",
    "disallow": "say what is allowed instead, with `type` or `enum`",
}

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_vetted: ByteLru[dict[str, Any]] = ByteLru(16 * 1024 * 1024)


def vet_schema(schema: Any, *, param: str, path: str = "$") -> dict[str, Any]:
    """`schema` as the grammar engine may have it, ready for `%json` (with its `x-guidance`).

    Pure JSON in, pure JSON out; treat the result as read-only, since it is remembered. Vetting a
    result again gives the same. Raises `InvalidRequest(param=param)` whose message names the JSON
    path (below `path`) and what to do when the schema is no schema, contradicts itself, has no
    finite document, uses a keyword that cannot be promised, or is larger than the limits above.
    """
    if schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise InvalidRequest(
            f"{path} must be a JSON schema, which is an object such as "
            f'{{"type": "object"}}, got {_kind(schema)}.',
            param=param,
        )
    _bound_nesting(schema, param, path)
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        size = len(text.encode("utf-8"))
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"{path} is not plain JSON: {error}.", param=param) from error
    if size > MAX_BYTES:
        raise InvalidRequest(
            f"{path} has {size} bytes; a schema may have {MAX_BYTES}. Shorten descriptions, or "
            "split the schema.",
            param=param,
        )
    key = (text, param, path)
    found = _vetted.get(key)
    if found is None:
        found = _Vet(json.loads(text), param, path).run()
        _vetted.put(key, found, 4 * size)
    return found


class _Vet:
    """One walk over a schema. Definitions that are referred to move to `$defs` of the result."""

    def __init__(self, root: dict[str, Any], param: str, path: str) -> None:
        self._root = root
        self._param = param
        self._path = path
        self._names: dict[str, str] = {}
        self._todo: list[tuple[str, Any, str]] = []
        self._paths: dict[str, str] = {}
        """Where the definitions of the result stood in the original."""

    def run(self) -> dict[str, Any]:
        root = self._node(self._root, self._path)
        if root is True:
            root = {}
        if root is False:
            self._fail(self._path, "allows nothing: no document fits the schema `false`")
        defs: dict[str, Any] = {}
        while self._todo:
            name, node, path = self._todo.pop(0)
            self._paths[name] = path
            defs[name] = self._node(node, path)
        if defs:
            root["$defs"] = defs
        least = Least(root)
        endless = least.endless()
        if endless is not None:
            self._fail(
                self._original(endless),
                "has no finite document: it requires itself without end, or something impossible. "
                "Make the recursive property optional, or allow null in its place",
            )
        out = {**root, "x-guidance": GUIDANCE}
        self._try(out, least)
        return out

    # -- nodes

    def _node(self, node: Any, path: str) -> Any:
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            self._fail(path, f"must be a schema (an object or a boolean), got {_kind(node)}")
        self._refuse(node, path)
        if node.get("nullable") is True:
            return self._nullable(node, path)
        if "propertyNames" in node:
            node = self._property_names(node, path)
        out: dict[str, Any] = {}
        self._plain(node, out, path)
        self._numbers(node, out, path)
        self._strings(node, out, path)
        if "$ref" in node:
            out["$ref"] = self._ref(node["$ref"], f"{path}.$ref")
        for key in ("anyOf", "allOf"):
            if key in node:
                out[key] = self._list(node[key], f"{path}.{key}")
        if "oneOf" in node:
            self._one_of(node, out, path)
        self._objects(node, out, path)
        self._arrays(node, out, path)
        self._bound(out)
        return out

    def _refuse(self, node: dict[str, Any], path: str) -> None:
        for key, instead in REFUSED.items():
            if key in node and not (key == "uniqueItems" and node[key] is False):
                self._fail(f"{path}.{key}", f"is not supported in constrained output; {instead}")

    def _plain(self, node: dict[str, Any], out: dict[str, Any], path: str) -> None:
        if "type" in node:
            kinds = node["type"]
            listed = kinds if isinstance(kinds, list) else [kinds]
            if not listed or any(k not in TYPES for k in listed if isinstance(k, str)):
                self._fail(f"{path}.type", f"must be one of {', '.join(TYPES)}, got {kinds!r}")
            if any(not isinstance(k, str) for k in listed):
                self._fail(f"{path}.type", "must be a string, or a list of strings")
            out["type"] = kinds
        if "const" in node:
            out["const"] = node["const"]
        if "enum" in node:
            values = node["enum"]
            if not isinstance(values, list) or not values:
                self._fail(f"{path}.enum", "must be a list with at least one value")
            if len(values) > MAX_ENUM:
                self._fail(
                    f"{path}.enum",
                    f"has {len(values)} values; at most {MAX_ENUM} are allowed. Use `pattern`, or "
                    "choose in two steps",
                )
            out["enum"] = values

    def _numbers(self, node: dict[str, Any], out: dict[str, Any], path: str) -> None:
        for key in _LIMITS:
            if key in node:
                value = node[key]
                good = isinstance(value, (int, float)) and not isinstance(value, bool)
                if not good or not math.isfinite(value) or (key == "multipleOf" and value <= 0):
                    self._fail(f"{path}.{key}", f"must be a number, got {value!r}")
                out[key] = value
        for key in _COUNTS:
            if key in node:
                value = node[key]
                good = isinstance(value, (int, float)) and not isinstance(value, bool)
                if not good or value < 0 or value != int(value):
                    self._fail(
                        f"{path}.{key}", f"must be a whole number of at least 0, got {value!r}"
                    )
                out[key] = int(value)
        for low, high in (_COUNTS[:2], _COUNTS[2:4], _COUNTS[4:], ("minimum", "maximum")):
            if low in out and high in out and out[low] > out[high]:
                self._fail(
                    f"{path}.{low}", f"is {out[low]}, above {high} of {out[high]}: nothing fits"
                )

    def _strings(self, node: dict[str, Any], out: dict[str, Any], path: str) -> None:
        if "pattern" in node:
            if not isinstance(node["pattern"], str):
                self._fail(f"{path}.pattern", "must be a regular expression in a string")
            self._regex(node["pattern"], f"{path}.pattern")
            out["pattern"] = node["pattern"]
        if "format" in node:
            name = node["format"]
            if not isinstance(name, str):
                self._fail(f"{path}.format", "must be a string")
            if name in FORMATS:
                out["format"] = name
            elif name not in LOOSE_FORMATS:
                self._fail(
                    f"{path}.format",
                    f"{name!r} is not supported in constrained output; use `pattern`, or one of "
                    + ", ".join(sorted(FORMATS)),
                )

    def _objects(self, node: dict[str, Any], out: dict[str, Any], path: str) -> None:
        for key in ("properties", "patternProperties"):
            if key in node:
                parts = node[key]
                if not isinstance(parts, dict):
                    self._fail(f"{path}.{key}", f"must be an object, got {_kind(parts)}")
                out[key] = {k: self._node(v, _under(f"{path}.{key}", k)) for k, v in parts.items()}
        for name in out.get("patternProperties", ()):
            self._regex(name, _under(f"{path}.patternProperties", name))
        if "additionalProperties" in node:
            out["additionalProperties"] = self._node(
                node["additionalProperties"], f"{path}.additionalProperties"
            )
        if "required" in node:
            names = node["required"]
            if not isinstance(names, list) or any(not isinstance(n, str) for n in names):
                self._fail(f"{path}.required", "must be a list of property names")
            out["required"] = list(dict.fromkeys(names))
            known = out.get("properties", {})
            for name in out["required"]:
                if known.get(name, True) is False:
                    self._fail(f"{path}.required", f"names {name!r}, which the schema forbids")
        self._count_properties(out, path)

    def _count_properties(self, out: dict[str, Any], path: str) -> None:
        """Counts of properties hold by themselves, or they are refused where they cannot."""
        known, needed = out.get("properties", {}), set(out.get("required", ()))
        optional = [name for name in known if name not in needed]
        if not optional:
            return
        if out.get("minProperties", 0) <= len(needed):
            out.pop("minProperties", None)
        closed = out.get("additionalProperties") is False and not out.get("patternProperties")
        if closed and out.get("maxProperties", len(known)) >= len(known):
            out.pop("maxProperties", None)
        for key in ("minProperties", "maxProperties"):
            if key in out:
                self._fail(
                    f"{path}.{key}",
                    "is not supported beside optional properties; list the ones that must be there "
                    "in `required`",
                )

    def _arrays(self, node: dict[str, Any], out: dict[str, Any], path: str) -> None:
        items, first = node.get("items"), node.get("prefixItems")
        where = "prefixItems"
        if isinstance(items, list):  # drafts before 2020-12
            first, items, where = items, node.get("additionalItems"), "items"
        if first is not None:
            out["prefixItems"] = self._list(first, f"{path}.{where}", empty=True)
        if items is not None:
            out["items"] = self._node(items, f"{path}.items")

    def _one_of(self, node: dict[str, Any], out: dict[str, Any], path: str) -> None:
        parts, raw = self._list(node["oneOf"], f"{path}.oneOf"), node["oneOf"]
        if "anyOf" in out:
            self._fail(f"{path}.oneOf", "is not supported beside `anyOf`; join the two")
        for a in range(len(raw)):
            for b in range(a):
                if not disjoint(raw[a], raw[b], self._target):
                    self._fail(
                        f"{path}.oneOf",
                        f"cannot be promised: a value may fit [{b}] and [{a}] both. Use `anyOf`, or "
                        "give each a required property with its own `const`",
                    )
        out["anyOf"] = parts

    def _nullable(self, node: dict[str, Any], path: str) -> Any:
        """OpenAPI's way of saying "or null"."""
        rest = {k: v for k, v in node.items() if k != "nullable"}
        return {"anyOf": [self._node(rest, path), {"type": "null"}]}

    def _property_names(self, node: dict[str, Any], path: str) -> dict[str, Any]:
        """`propertyNames` in terms of `patternProperties`, where nothing else names properties."""
        names = self._resolved(node["propertyNames"], f"{path}.propertyNames")
        rest = {k: v for k, v in node.items() if k != "propertyNames"}
        said = {k for k in names if k in ("pattern", "enum", "const", *_COUNTS[:2], "format")}
        if not said:
            return rest
        listed = [names["const"]] if "const" in names else names.get("enum")
        if "properties" in node or "patternProperties" in node or len(said) > 1:
            self._fail(f"{path}.propertyNames", "is not supported here; list the `properties`")
        if listed is not None:
            if not isinstance(listed, list) or not all(isinstance(n, str) for n in listed):
                self._fail(f"{path}.propertyNames", "must be strings")
            pattern = f"^({'|'.join(re.escape(name) for name in listed)})$"
        elif isinstance(names.get("pattern"), str):
            pattern = names["pattern"]
        else:
            self._fail(f"{path}.propertyNames", "supports `pattern`, `enum` and `const` only")
        rest["patternProperties"] = {pattern: node.get("additionalProperties", True)}
        rest["additionalProperties"] = False
        return rest

    def _bound(self, out: dict[str, Any]) -> None:
        """Bounds where there are none, so that a weak model comes to an end."""
        kinds = out.get("type", ())
        kinds = (kinds,) if isinstance(kinds, str) else kinds
        if "const" in out or "enum" in out:
            return
        if "string" in kinds and "maxLength" not in out and "format" not in out:
            out["maxLength"] = max(MAX_STRING, out.get("minLength", 0))
        if "array" in kinds and "maxItems" not in out:
            out["maxItems"] = max(MAX_ITEMS, out.get("minItems", 0))

    # -- references

    def _ref(self, ref: Any, path: str) -> str:
        node = self._target(ref, path)
        if ref == "#":
            return "#"
        name = self._names.get(ref)
        if name is None:
            base = re.sub(r"[^A-Za-z0-9_]", "_", ref.rsplit("/", 1)[-1]) or "_"
            taken, name, count = set(self._names.values()), base, 1
            while name in taken:
                count += 1
                name = f"{base}_{count}"
            if len(taken) >= MAX_DEFS:
                self._fail(path, f"is one definition too many; at most {MAX_DEFS} are allowed")
            self._names[ref] = name
            self._todo.append((name, node, self._path + _dotted(ref)))
        return f"#/$defs/{name}"

    def _target(self, ref: Any, path: str = "") -> Any:
        if not isinstance(ref, str) or not ref.startswith("#") or ref[1:2] not in ("", "/"):
            self._fail(
                path, f"must be a pointer into this schema, such as '#/$defs/name', got {ref!r}"
            )
        node: Any = self._root
        for part in ref.split("/")[1:]:
            part = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and part in node:
                node = node[part]
            elif isinstance(node, list) and part.isdecimal() and int(part) < len(node):
                node = node[int(part)]
            else:
                self._fail(path, f"points to {ref!r}, which is not there")
        return node

    def _resolved(self, node: Any, path: str) -> dict[str, Any]:
        """`node`, or what it refers to."""
        for _ in range(MAX_NESTING):
            if not isinstance(node, dict):
                return {}
            if "$ref" not in node:
                return node
            node = self._target(node["$ref"], f"{path}.$ref")
        self._fail(path, "refers to itself")

    # -- checks by the grammar engine itself

    def _regex(self, pattern: str, path: str) -> None:
        problem = _complaint({"type": "string", "pattern": pattern})
        if problem:
            self._fail(
                path,
                f"{pattern!r} cannot be used: {problem}. Look-around, back-references and word "
                "boundaries are not supported",
            )

    def _try(self, out: dict[str, Any], least: Least) -> None:
        """Let the grammar engine build it, and find the smallest part that it refuses."""
        problem = _complaint(out)
        if not problem:
            return
        common = {k: v for k, v in out.items() if k in ("$defs", "x-guidance")}
        for count, (path, node) in enumerate(least.nodes()):
            if count == 2_000:
                break
            if isinstance(node, Mapping) and "$ref" not in node:
                found = _complaint({**node, **common})
                if found:
                    self._fail(self._original(path), f"cannot be used: {found}")
        self._fail(self._path, f"cannot be used: {problem}")

    # -- words

    def _list(self, parts: Any, path: str, *, empty: bool = False) -> list[Any]:
        if not isinstance(parts, list) or not (parts or empty):
            self._fail(path, "must be a list of schemas")
        return [self._node(part, f"{path}[{index}]") for index, part in enumerate(parts)]

    def _original(self, path: str) -> str:
        """A path in the result as the caller knows it."""
        for name in sorted(self._paths, key=len, reverse=True):
            prefix = f".$defs.{name}"
            if path == prefix or path.startswith((prefix + ".", prefix + "[")):
                return self._paths[name] + path[len(prefix) :]
        return self._path + path

    def _fail(self, path: str, problem: str) -> NoReturn:
        raise InvalidRequest(f"{path} {problem}.", param=self._param)


def _complaint(schema: Mapping[str, Any]) -> str:
    """What the grammar engine says against a schema; empty when it takes it."""
    from llguidance import LLMatcher

    text = json.dumps(schema, ensure_ascii=False)
    try:
        source = LLMatcher.grammar_from_json_schema(text, overrides=cast(Any, GUIDANCE))
        found = build(lambda: LLMatcher.validate_grammar(source))
    except TimeoutError:
        return f"it takes longer than {TIME_LIMIT:.0f} s to compile"
    except ValueError as error:
        return str(error)
    if not found or found.startswith("WARNING"):
        return ""
    return " ".join(found.split())[:300]


def _bound_nesting(schema: Any, param: str, path: str) -> None:
    """Without recursion, since the schema may be thousands of levels deep."""
    level: list[Iterator[Any]] = [iter((schema,))]
    while level:
        value = next(level[-1], level)
        if value is level:
            level.pop()
        elif isinstance(value, (Mapping, list, tuple)):
            if len(level) > MAX_NESTING:
                raise InvalidRequest(
                    f"{path} is nested deeper than {MAX_NESTING} levels. Flatten it, or use `$ref` "
                    "into `$defs`.",
                    param=param,
                )
            level.append(iter(value.values() if isinstance(value, Mapping) else value))


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if re.fullmatch(r"[\w$-]+", name) else f"{path}[{json.dumps(name)}]"


def _dotted(ref: str) -> str:
    return "".join(f".{part}" for part in ref.split("/")[1:])


def _kind(value: Any) -> str:
    names: dict[type, str] = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), f"{value!r}"[:40])
