import os
from pathlib import Path

from openai import OpenAI

MANUAL = """You help people to find things in a shared drive.
Say in which folder something most likely is, and name two more if you are not sure.
Folders that begin with an underscore are archives; look there last.
Never open a file, never guess what is in it, and never suggest to delete one.
Names are given exactly as they are written, with their ending."""
FOLDERS = "\n".join(sorted(p.name for p in Path("/srv/shared").iterdir()))


def size():
    return sum(os.path.getsize(os.path.join("/srv/shared", n)) for n in os.listdir("/srv/shared"))


def find(wish):
    return OpenAI().chat.completions.create(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": f"{MANUAL}\n\nFolders:\n{FOLDERS}"},
            {"role": "user", "content": wish},
        ],
    )
