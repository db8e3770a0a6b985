"""The bytes of a log: a path or stdin, plain or packed, without ever holding more than a chunk."""

from __future__ import annotations

import codecs
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from agentkv.trace.readers.problems import LogError, Problems

CHUNK = 1 << 18
STDIN = "<stdin>"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_FOREIGN = {
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"BZh": "packed with bzip2: unpack it first",
    b"\xfd7zXZ\x00": "packed with xz: unpack it first",
    b"PAR1": "a Parquet file: export it as JSON lines first",
    b"SQLite format 3": "an SQLite database: export it as JSON lines first",
}
_MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def name_of(path: str | Path) -> str:
    """How a log is named in places and problems."""
    return STDIN if str(path) == "-" else str(path)


def check(path: str | Path) -> None:
    """Raise LogError, with one clear sentence, for a log that cannot be opened."""
    if Path(path).is_dir():
        raise LogError(f"{path} is a directory; name the log files in it")
    if is_pipe(path):
        return  # what is read from it is gone
    with _open(path) as file:
        _refuse(name_of(path), file.read(16))


def is_pipe(path: str | Path) -> bool:
    """Whether a log can be read only once: stdin, `<(zcat log.gz)`, a named pipe."""
    return str(path) == "-" or (Path(path).exists() and not Path(path).is_file())


def _open(path: str | Path) -> BinaryIO:
    where = Path(path)
    try:
        return where.open("rb")
    except FileNotFoundError:
        raise LogError(f"there is no file {path}") from None
    except PermissionError:
        raise LogError(f"{path} may not be read by this user") from None
    except OSError as error:
        raise LogError(f"{path} cannot be opened: {error.strerror or error}") from None


def _refuse(name: str, head: bytes) -> None:
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise LogError(f"{name} is {what}")
    if head.startswith(_ZSTD):
        _zstandard(name)


def chunks(path: str | Path, problems: Problems) -> Iterator[bytes]:
    """The unpacked bytes of a log, as UTF-8. A packed file that ends early or is damaged gives what
    is before the damage, and one problem."""
    name = name_of(path)
    file = sys.stdin.buffer if str(path) == "-" else _open(path)
    try:
        head = file.read(16)
        _refuse(name, head)
        raw = _rest(file, head)
        if head.startswith(_GZIP):
            raw = _gzip(raw, name, problems)
        elif head.startswith(_ZSTD):
            raw = _zstd(raw, name, problems)
        yield from _as_utf8(raw)
    finally:
        if str(path) != "-":
            file.close()


def _rest(file: BinaryIO, head: bytes) -> Iterator[bytes]:
    yield head
    while more := file.read(CHUNK):
        yield more


def _gzip(raw: Iterator[bytes], name: str, problems: Problems) -> Iterator[bytes]:
    unpack = zlib.decompressobj(wbits=31)
    began = False
    for data in raw:
        while data:
            if unpack.eof:  # another member; what follows a member may also be padding
                data = data.lstrip(b"\0")
                if not data:
                    break
                unpack, began = zlib.decompressobj(wbits=31), False
            try:
                plain = unpack.decompress(data, CHUNK)
            except zlib.error as error:
                problems.add(
                    "damaged",
                    name,
                    0,
                    f"the gzip data is damaged ({error}); what came before it was read",
                )
                return
            began = True
            if plain:
                yield plain
            data = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
    if began and not unpack.eof:
        yield unpack.flush()
        problems.add(
            "cut off", name, 0, "the gzip file ends early; what came before its end was read"
        )


def _zstd(raw: Iterator[bytes], name: str, problems: Problems) -> Iterator[bytes]:
    library = _zstandard(name)
    unpack = library.ZstdDecompressor().decompressobj()
    for data in raw:
        while data:
            if unpack.eof:
                unpack = library.ZstdDecompressor().decompressobj()
            try:
                plain = unpack.decompress(data)
            except library.ZstdError as error:
                problems.add(
                    "damaged",
                    name,
                    0,
                    f"the zstd data is damaged ({error}); what came before it was read",
                )
                return
            if plain:
                yield plain
            data = unpack.unused_data if unpack.eof else b""
    if not unpack.eof:
        problems.add(
            "cut off", name, 0, "the zstd file ends early; what came before its end was read"
        )


def _zstandard(name: str) -> Any:
    try:
        import zstandard
    except ImportError:
        raise LogError(
            f"{name} is packed with zstd, and the package zstandard is not installed: "
            "pip install zstandard, or unpack the file first"
        ) from None
    return zstandard


def _as_utf8(raw: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes without a byte-order mark; UTF-16 (as some shells write it) becomes UTF-8."""
    first = b""
    for first in raw:
        if len(first) >= 3:
            break
    for mark, encoding in _MARKS:
        if first.startswith(mark):
            decode = codecs.getincrementaldecoder(encoding)("replace").decode
            yield decode(first[len(mark) :]).encode()
            for data in raw:
                yield decode(data).encode("utf-8", "replace")
            return
    yield first.removeprefix(codecs.BOM_UTF8)
    yield from raw
