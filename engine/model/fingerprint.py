"""Which weights these are: the part of a cache key that keeps fine-tunes apart.

Every byte of the safetensors files counts (two fine-tunes may differ in a single late layer), so
the digest is computed over the whole content once, and remembered beside the model by file name,
size and modification time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agentkv.engine.model.config import read_json
from agentkv.engine.model.weights import weight_files

_MEMO = ".agentkv-fingerprint.json"
_PIECE = 1 << 24
# Keys of config.json that say how files came about, not what the model computes.
_IGNORED = {
    "_name_or_path",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "use_cache",
    "_attn_implementation_autoset",
}


def fingerprint(model_dir: Path) -> str:
    """32 hexadecimal digits over the weights and what config.json says about them.

    A directory that cannot be written to is fine: the digest is then computed each time (about
    half a second a gigabyte on two cores).
    """
    files = weight_files(model_dir)
    stamp = {p.name: [p.stat().st_size, p.stat().st_mtime_ns] for p in files}
    digests = _remembered(model_dir, stamp)
    if digests is None:
        digests = {p.name: _file_digest(p) for p in files}
        _remember(model_dir, stamp, digests)
    raw = {k: v for k, v in read_json(model_dir / "config.json").items() if k not in _IGNORED}
    whole = hashlib.blake2b(digest_size=16)
    whole.update(json.dumps(raw, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(digests):
        whole.update(digests[name].encode())
    return whole.hexdigest()


def _file_digest(path: Path) -> str:
    """blake2b over the blake2b digests of 16 MiB pieces (which hash side by side: no lock held)."""
    size = path.stat().st_size
    whole = hashlib.blake2b(size.to_bytes(8, "little"), digest_size=32)
    if size:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            view = memoryview(content)
            try:
                with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
                    pieces = pool.map(lambda at: _piece(view, at), range(0, size, _PIECE))
                    for digest in pieces:
                        whole.update(digest)
            finally:
                view.release()
    return whole.hexdigest()


def _piece(view: memoryview, at: int) -> bytes:
    with view[at : at + _PIECE] as part:
        return hashlib.blake2b(part, digest_size=32).digest()


def _remembered(model_dir: Path, stamp: dict[str, list[int]]) -> dict[str, str] | None:
    try:
        memo: dict[str, Any] = json.loads((model_dir / _MEMO).read_text())
        found = memo["digests"]
        if (
            memo["files"] == stamp
            and set(found) == set(stamp)
            and all(isinstance(v, str) for v in found.values())
        ):
            return dict(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _remember(model_dir: Path, stamp: dict[str, list[int]], digests: dict[str, str]) -> None:
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(dir=model_dir, prefix=_MEMO)
        with os.fdopen(handle, "w") as file:
            json.dump({"files": stamp, "digests": digests}, file)
        os.replace(name, model_dir / _MEMO)
