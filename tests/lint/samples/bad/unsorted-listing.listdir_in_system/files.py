import os

from openai import OpenAI

MANUAL = """You help people to find things in a shared drive.
Say in which folder something most likely is, and name two more if you are not sure.
Folders that begin with an underscore are archives; look there last.
Never open a file, never guess what is in it, and never suggest to delete one.
Names are given exactly as they are written, with their ending.
If something has several versions, name the one with the highest number."""


def find(wish):
    names = "\n".join(os.listdir("/srv/shared"))
    system = f"Folders:\n{names}\n\n{MANUAL}"
    return OpenAI().chat.completions.create(
        model="gpt-4o",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": wish}],
    )
