import os
import socket

from litellm import completion

DUTIES = """You write the morning summary of a server room.
Use the measurements that you are given and invent none.
Name each machine whose temperature was above 70 degrees for more than ten minutes.
Name each disk with new reallocated sectors and each fan below its minimum speed.
Group the findings by rack, the most serious rack first.
Write in full sentences for a reader who starts the shift and has five minutes.
Leave out everything that was already reported yesterday and has not changed."""


def summarise(measurements: str):
    system = f"Host {socket.gethostname()}, process {os.getpid()}.\n{DUTIES}"
    return completion(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": measurements}],
    )
