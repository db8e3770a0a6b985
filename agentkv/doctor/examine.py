"""All checks, one after the other; a check that raises is a finding like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentkv.doctor import accelerator, extras, model, system
from agentkv.doctor.finding import Examination, Finding
from agentkv.doctor.kernels import kernels

Check = Callable[[], Finding]


def checks(*, quick: bool = False) -> dict[str, Check]:
    """By name, in order. `quick` leaves out what loads the model or takes many seconds."""
    found: dict[str, Check] = {
        "python": system.python,
        "agentkv": system.package,
        "torch": accelerator.torch,
        "device": accelerator.device,
        "triton": accelerator.triton,
        "kernels": lambda: kernels(interpreter=not quick),
        "memory": system.memory,
        "directories": system.directories,
        "model": lambda: model.model(digest=not quick),
        "tiktoken": extras.tiktoken,
        "flashinfer": extras.flashinfer,
        "redis": extras.redis,
        "langchain": extras.langchain,
        "reuse": model.reuse,
    }
    if quick:
        del found["reuse"]
    return found


def findings(*, quick: bool = False) -> Iterator[Finding]:
    """Each finding as soon as it is made."""
    for name, check in checks(quick=quick).items():
        yield guarded(name, check)


def guarded(name: str, check: Check) -> Finding:
    """What a check finds; a `problem` with the error's first line when it fails."""
    try:
        return check()
    except Exception as error:  # a broken installation can raise anything at all
        first = (str(error).splitlines() or [""])[0]
        text = f"the check failed: {type(error).__name__}: {first[:300]}"
        return Finding(name, "problem", text, "agentkv doctor --json")


def examine(*, quick: bool = False) -> Examination:
    """All of them."""
    return Examination(list(findings(quick=quick)))
