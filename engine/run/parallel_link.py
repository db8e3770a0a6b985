"""What rank 0 and another rank say to each other: frames over a socket that only these two have.

    kind, length | payload            kind 1 byte, length 8 bytes, little-endian

Commands and batches go this way rather than by a collective: whoever waits for the next batch, maybe
for hours, sleeps in a read instead of running into a collective's timeout, and a process that is gone
shows as the end of the stream.
"""

from __future__ import annotations

import json
import socket
import struct
from enum import IntEnum
from typing import Any

import numpy as np

from agentkv.engine.sched.batch import ForwardBatch
from agentkv.engine.types import IntArray

_HEAD = struct.Struct("<BQ")
_FIELDS = (
    "input_ids",
    "positions",
    "out_slots",
    "qo_indptr",
    "kv_indptr",
    "kv_indices",
    "logit_rows",
)


class Kind(IntEnum):
    """What a frame is. From rank 0: SETTINGS to FETCH; from the others the rest, and FACTS as the answer.

    HOST makes a host pool; DOWN, UP, PUT and FETCH copy between it and the pool (parallel_copies.py)."""

    SETTINGS = 1
    JOIN = 2
    POOL = 3
    STEP = 4
    FACTS = 5
    CLOSE = 6
    HOST = 7
    DOWN = 8
    UP = 9
    PUT = 10
    FETCH = 11
    LOADED = 21
    READY = 22
    BEAT = 23
    FAILED = 24
    ROWS = 25


Frame = tuple[Kind, bytearray]


class Frames:
    """Bytes as they come, to whole frames."""

    def __init__(self) -> None:
        self._left = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """What is complete with `data` behind what came before."""
        self._left += data
        found: list[Frame] = []
        while len(self._left) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._left)
            end = _HEAD.size + length
            if len(self._left) < end:
                break
            found.append((Kind(kind), self._left[_HEAD.size : end]))
            self._left = self._left[end:]
        return found


def send(sock: socket.socket, kind: Kind, payload: bytes | bytearray = b"") -> None:
    """One frame, whole. `OSError` when the other end is gone, or does not take it within the socket's
    timeout."""
    sock.sendall(_HEAD.pack(kind, len(payload)) + payload)


def dumps(value: Any) -> bytes:
    """A small object as a payload."""
    return json.dumps(value).encode()


def loads(payload: bytes | bytearray) -> Any:
    """What `dumps` was given."""
    return json.loads(payload.decode())


def pack(step: int, batch: ForwardBatch) -> bytes:
    """A batch as one int32 array: the step's number, the length of each table, the tables."""
    tables = [getattr(batch, name) for name in _FIELDS]
    head = np.array([step & 0x7FFFFFFF, *(len(t) for t in tables)], dtype=np.int32)
    return np.concatenate([head, *tables]).astype(np.int32, copy=False).tobytes()


def unpack(payload: bytearray) -> tuple[int, ForwardBatch]:
    """Step and batch; the tables are views of `payload`."""
    flat: IntArray = np.frombuffer(payload, dtype=np.int32)
    count = len(_FIELDS)
    ends = np.cumsum(flat[1 : 1 + count]) + 1 + count
    parts = np.split(flat[: ends[-1]], [1 + count, *ends[:-1].tolist()])[1:]
    return int(flat[0]), ForwardBatch(**dict(zip(_FIELDS, parts, strict=True)))
