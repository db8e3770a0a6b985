"""Server-sent events, read line by line."""

from __future__ import annotations

import json
from typing import Any

DONE = "[DONE]"


class Events:
    """Collects lines into events. Comments and fields other than `data` say nothing here."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def feed(self, line: str) -> str | None:
        """The data of an event, when `line` (without its line break) ended one."""
        if not line:
            if not self._data:
                return None
            data, self._data = "\n".join(self._data), []
            return data
        if line.startswith("data:"):
            value = line[5:]
            self._data.append(value[1:] if value.startswith(" ") else value)
        return None


def decode(data: str) -> dict[str, Any]:
    """The JSON object of an event. Raises ValueError for anything else."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"an event held a {type(value).__name__} instead of an object.")
    return value
