"""One of the other ranks as rank 0 sees it: a process, our end of its socket, and what it has said."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from agentkv.engine.run.parallel_link import Frames, Kind, loads

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from agentkv.engine.run.parallel_worker import main; "
    "main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[4])"
)


class RankProcess:
    """Starts the process. `patience`: seconds that a message to it may take to be taken. `home`: a
    directory that it removes if rank 0 is gone and cannot.

    `heard`: when it last said something (monotonic seconds). `busy`: seconds that its step takes
    already. `gone`: its end of the socket is closed.
    """

    def __init__(self, rank: int, patience: float, home: Path) -> None:
        self.rank = rank
        ours, theirs = socket.socketpair()
        path = json.dumps([p or os.getcwd() for p in sys.path])
        try:
            # A program of its own rather than a fork, and rather than a second run of the user's
            # script. A session of its own: Ctrl-C is for rank 0, which ends the others.
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _BOOT,
                    str(theirs.fileno()),
                    str(os.getpid()),
                    path,
                    str(home),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.settimeout(patience)
        self.socket = ours
        self.said: dict[Kind, bytearray] = {}
        self.heard = time.monotonic()
        self.busy = 0.0
        self.gone = False
        self._frames = Frames()

    def take(self, data: bytes) -> None:
        """What came from it; nothing: it has closed its end."""
        self.heard = time.monotonic()
        self.gone = not data
        for kind, payload in self._frames.feed(data):
            if kind is Kind.BEAT:
                self.busy = loads(payload)
            else:
                self.said[kind] = payload

    @property
    def lost(self) -> bool:
        """Whether it is of no more use."""
        return self.gone or Kind.FAILED in self.said

    @property
    def blames_another(self) -> bool:
        """Whether all it knows is that an exchange failed, which another rank's end explains."""
        return Kind.FAILED in self.said and bool(loads(self.said[Kind.FAILED])["lost"])

    def why(self) -> str:
        """What happened to it, once it is `lost`."""
        if Kind.FAILED in self.said:
            return f"failed: {loads(self.said[Kind.FAILED])['reason']}"
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if code >= 0:
            return f"ended with exit code {code}, and its reason is what it wrote to standard error"
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"

    def kill(self) -> None:
        """End it now, if it is still there."""
        if self.process.poll() is None:
            self.process.kill()

    def end(self, deadline: float) -> None:
        """See that it is over: by itself until then (monotonic seconds), or by force."""
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.socket.close()
