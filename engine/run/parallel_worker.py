"""The process of a rank other than 0: a part of the model, a part of the pool, and what it is told.

    its thread "link"   reads commands, beats, ends the process when rank 0 is gone
    main thread         runs the commands in order

It ends with rank 0 whatever happens to that: its socket closes when the process does, and where a fork
of that process keeps the socket open, its parent is another one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import queue
import select
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from agentkv.engine.config import EngineConfig
from agentkv.engine.device import find_device
from agentkv.engine.errors import EngineError
from agentkv.engine.kv.pool import KV_DTYPES, KVPool
from agentkv.engine.model.shard import Shard
from agentkv.engine.model.shard_llama import ShardedLlama
from agentkv.engine.run.backends import attention_name, batch_tokens, device_tokens, make_runner
from agentkv.engine.run.calibrate import fp8_scales
from agentkv.engine.run.parallel_copies import RankHost
from agentkv.engine.run.parallel_facts import Tally
from agentkv.engine.run.parallel_group import Group, PeerLost
from agentkv.engine.run.parallel_link import Frame, Frames, Kind, dumps, loads, send, unpack
from agentkv.engine.text.tokenizer import Tokenizer
from agentkv.kernels.fp8 import FP8


class _Link:
    """The socket to rank 0. `commands` are what it has sent and was not taken yet."""

    def __init__(self, sock: socket.socket, parent: int, home: str) -> None:
        self._socket = sock
        self._parent = parent
        self._home = home
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="link", daemon=True)
        self.commands: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self.beat = 1.0
        self.since: float | None = None
        """When the command began that is being run."""

    def start(self) -> None:
        self._reader.start()

    def say(self, kind: Kind, payload: bytes = b"") -> None:
        with self._lock:
            send(self._socket, kind, payload)

    def expect(self, kind: Kind) -> bytearray:
        """The next command, which must be this one. Ends the process when it is time to close."""
        got, payload = self.commands.get()
        if got is Kind.CLOSE:
            os._exit(0)
        if got is not kind:
            raise RuntimeError(f"rank 0 sent {got.name}, and {kind.name} was due")
        return payload

    def wait_for_the_end(self, seconds: float = 0.5) -> None:
        """Let the reader find out whether rank 0 is gone: a failed exchange may be all that this
        thread has seen of that. The reader then tidies up, and ends the process."""
        self._reader.join(seconds)

    def _read(self) -> None:
        frames, due = Frames(), 0.0
        try:
            while True:
                if time.monotonic() >= due:
                    if os.getppid() != self._parent:
                        break
                    began = self.since
                    busy = 0.0 if began is None else time.monotonic() - began
                    self.say(Kind.BEAT, dumps(busy))
                    due = time.monotonic() + self.beat
                if not select.select([self._socket], [], [], self.beat)[0]:
                    continue
                data = self._socket.recv(1 << 20)
                if not data:
                    break
                for frame in frames.feed(data):
                    if frame[0] is Kind.CLOSE:
                        os._exit(0)
                    self.commands.put(frame)
        except OSError:
            pass  # as the end of the stream
        shutil.rmtree(self._home, ignore_errors=True)  # rank 0 can no longer do so
        os._exit(1)


class Worker:
    """One rank's part of the engine."""

    def __init__(self, link: _Link, settings: dict[str, Any]) -> None:
        self._link = link
        self._shard = Shard(settings["rank"], settings["world"])
        link.beat = settings["beat"]
        torch.set_num_threads(settings["threads"])
        config = EngineConfig(**settings["config"])
        directory, dtype = Path(settings["directory"]), getattr(torch, settings["dtype"])
        self._device = device = find_device(config.device)
        if device is not None:
            device.adopt()
        where = torch.device("cpu") if device is None else device.where
        group = Group(self._shard, where, settings["exchange"])
        model = ShardedLlama.load_part(directory, group, dtype=dtype, device=where)
        link.say(Kind.LOADED)
        link.expect(Kind.JOIN)
        group.connect(Path(settings["meeting"]))
        # From here on in the order of rank 0 (`Parts.load`): each of these asks the others.
        shape = model.config
        kv_dtype = dtype if config.kv_dtype == "auto" else KV_DTYPES[config.kv_dtype]
        host_dtype = KV_DTYPES.get(config.host_kv_dtype, kv_dtype) if config.lower else kv_dtype
        scales = None
        if FP8 in (kv_dtype, host_dtype):
            scales = fp8_scales(model, Tokenizer.load(directory), directory, self._shard)
        window = min(config.max_model_len or shape.max_position, shape.max_position)
        if device is not None and config.pool_tokens is None:
            token = KVPool.bytes_per_token(
                shape.num_layers, shape.num_kv_heads, shape.head_dim, kv_dtype
            )
            rows = batch_tokens(config, device)
            group.fewest(device_tokens(config, model, device, token, window, rows))
        self._pool = KVPool(
            layers=shape.num_layers,
            slots=loads(link.expect(Kind.POOL))["tokens"],
            kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            dtype=kv_dtype,
            device=where,
            scales=scales,
        )
        attention = attention_name(config, device)
        self._runner, _ = make_runner(config, model, self._pool, device, attention, window)
        self._host: RankHost | None = None
        self._tally = Tally()
        link.say(Kind.READY, dumps({"bit_exact": self._runner.bit_exact}))

    def run(self) -> None:
        """Do as rank 0 says. Does not return."""
        while True:
            kind, payload = self._link.commands.get()
            if kind is Kind.STEP:
                step, batch = unpack(payload)
                if step != self._tally.steps & 0x7FFFFFFF:
                    raise RuntimeError(f"step {step} came, and {self._tally.steps} was due")
                self._tally.count(batch)
                self._link.since = time.monotonic()
                self._runner.forward(batch)
                if self._device is not None:
                    self._device.record().synchronize()
                self._link.since = None
            elif kind is Kind.HOST:
                self._host = RankHost(self._pool, self._device, loads(payload))
            elif kind is Kind.FACTS:
                facts = self._tally.facts(self._shard.rank, self._pool)
                self._link.say(Kind.FACTS, dumps(facts.as_dict()))
            elif self._host is None or not self._host.do(kind, payload, self._link.say):
                raise RuntimeError(f"rank 0 sent {kind.name}, which has no place here")


def main(fd: int, parent: int, home: str) -> None:
    """Entry point. `fd`: this end of the socket; `parent`: rank 0's process; `home`: the directory of
    these ranks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    link = _Link(socket.socket(fileno=fd), parent, home)
    link.start()
    try:
        Worker(link, loads(link.expect(Kind.SETTINGS))).run()
    except BaseException as error:
        known = isinstance(error, EngineError)
        reason = str(error) if known else f"{type(error).__name__}: {error}"
        if not known:
            traceback.print_exc(file=sys.stderr)
        with contextlib.suppress(OSError):  # rank 0 is gone, and so are we
            link.say(Kind.FAILED, dumps({"reason": reason, "lost": isinstance(error, PeerLost)}))
        sys.stderr.flush()
        link.wait_for_the_end()
        os._exit(1)
