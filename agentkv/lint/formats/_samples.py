"""What example values say of a variable: one value everywhere is a setting, several are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentkv.lint.formats._expression import Facts
from agentkv.lint.names import guess


def judged(name: str, values: Iterable[str], sets: int, what: str) -> Facts:
    """Facts of a variable that had `values` in `sets` sets of examples (`what`: "tests")."""
    seen = list(values)
    different = list(dict.fromkeys(seen))
    level, traits = guess(name)
    example = different[0][:200] if different else None
    if len(different) > 1:
        if level in ("unknown", "build", "deploy"):
            return Facts(
                "turn", traits, f"{len(different)} values in {what}", True, name, (name,), example
            )
        return Facts(
            level, traits, f"{len(different)} values in {what}", True, name, (name,), example
        )
    if len(different) == 1 and sets > 1 and len(seen) >= sets and level != "call":
        return Facts("deploy", traits, f"one value in all {what}", True, name, (name,), example)
    return Facts(
        level,
        traits,
        f"named `{name}`" if level != "unknown" else "",
        False,
        name,
        (name,),
        example,
    )


def table(samples: Iterable[Mapping[str, str]], what: str) -> dict[str, Facts]:
    """Facts of every variable in sets of examples."""
    sets = list(samples)
    names = dict.fromkeys(n for s in sets for n in s)
    return {n: judged(n, [s[n] for s in sets if n in s], len(sets), what) for n in names}
