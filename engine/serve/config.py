"""What a server is made with: where it listens, who may call, and the engine behind it."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path

from agentkv.engine.config import EngineConfig
from agentkv.engine.errors import InvalidRequest

MIB = 1 << 20
KEY_VARIABLE = "AGENTKV_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Settings of one server. Times are seconds, sizes are bytes.

    A host that is not loopback needs an API key, or `insecure_no_auth=True`: anyone who can reach
    the port could run the model and read its cache otherwise. `api_keys` never appear in `repr`
    nor in `/server_info`. `allowed_hosts` adds names to the loopback names that the `Host` header
    may carry (a web page that rebinds its own name to 127.0.0.1 is refused). `record`: a file that
    gets a line for each call (`agentkv.engine.recording`), with `record_text` its text as well.
    """

    engine: EngineConfig = field(default_factory=EngineConfig)
    host: str = "127.0.0.1"
    port: int = 8080
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    insecure_no_auth: bool = False
    allowed_hosts: tuple[str, ...] = ()
    drain_timeout: float = 20.0
    receive_timeout: float = 30.0
    ping_interval: float = 15.0
    max_body: int = 32 * MIB
    record: str | None = None
    record_text: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidRequest(
                f"port must be between 0 and 65535, got {self.port}.", param="port"
            )
        for name in ("receive_timeout", "ping_interval"):
            if not getattr(self, name) > 0:
                raise InvalidRequest(f"{name} must be above 0.", param=name)
        if not self.drain_timeout >= 0:
            raise InvalidRequest("drain_timeout must be at least 0.", param="drain_timeout")
        if self.record_text and self.record is None:
            raise InvalidRequest("record_text needs a file to record to.", param="record_text")
        if not (is_loopback(self.host) or self.api_keys or self.insecure_no_auth):
            raise InvalidRequest(
                f"{self.host} can be reached from other machines, and no API key is set, so "
                "anyone could use this server. Give --api-key-file FILE (or set "
                f"{KEY_VARIABLE}), or accept the risk with --insecure-no-auth.",
                param="host",
            )


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine only."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def read_api_keys(path: Path | None) -> tuple[str, ...]:
    """The keys in `path` (one a line, `#` starts a comment) and in `AGENTKV_API_KEY`.

    Keys come from a file or the environment and never from the command line, which every process
    of the machine can read. Raises `InvalidRequest` when the file cannot be read or is empty.
    """
    keys: list[str] = []
    if path is not None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(
                f"Cannot read the API key file {path}: {error}.", param="api_key_file"
            ) from error
        keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not keys:
            raise InvalidRequest(f"The API key file {path} holds no key.", param="api_key_file")
    from_environment = os.environ.get(KEY_VARIABLE, "").strip()
    if from_environment:
        keys.append(from_environment)
    return tuple(dict.fromkeys(keys))
