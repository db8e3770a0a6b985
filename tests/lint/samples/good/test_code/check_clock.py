from datetime import datetime
from uuid import uuid4

TEXT = "You are {name} and the answer was given at {now}; do not change it, and do not ask again."


def test_text():
    now, name = datetime.now(), f"user-{uuid4()}"
    assert TEXT.format(name=name, now=now).startswith(f"You are {name} and the answer")
    assert str(now) in TEXT.format(name=name, now=now), f"{now} is missing in the text of {name}"
