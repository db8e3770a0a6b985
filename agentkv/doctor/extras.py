"""Checks of what is optional: present, or which command brings it."""

from __future__ import annotations

from agentkv.bench.device_facts import installed
from agentkv.doctor.finding import Finding

TIKTOKEN_FILE = "python -c \"import tiktoken; tiktoken.get_encoding('o200k_base')\""


def tiktoken() -> Finding:
    """Whether token counts without a model are exact: its tables are files that it downloads."""
    from agentkv.lint.tokens import counter

    found = counter()
    if found.exact:
        return Finding("tiktoken", "ok", f"{found.name} is here: lint and layout count exactly")
    if installed("tiktoken") is None:
        return Finding(
            "tiktoken", "warning", "not installed: token counts are estimates",
            "pip install tiktoken",
        )  # fmt: skip
    return Finding(
        "tiktoken", "warning", "no table in its cache: lint estimates token counts", TIKTOKEN_FILE
    )


def flashinfer() -> Finding:
    return _optional(
        "flashinfer", "flashinfer-python", "attention='flashinfer' on a GPU", "flashinfer-python"
    )


def redis() -> Finding:
    return _optional("redis", "redis", "--remote-cache", "'agentkv[redis]'")


def langchain() -> Finding:
    return _optional("langchain", "langchain", "agents (create_agent)", "'agentkv[langchain]'")


def _optional(check: str, distribution: str, use: str, package: str) -> Finding:
    number = installed(distribution)
    if number is not None:
        return Finding(check, "ok", number, facts={"version": number})
    return Finding(
        check, "ok", f"not installed; optional, for {use}", f"pip install {package}",
        {"version": None},
    )  # fmt: skip
