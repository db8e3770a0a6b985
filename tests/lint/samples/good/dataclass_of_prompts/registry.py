from dataclasses import dataclass, field
from datetime import datetime


@dataclass
class Prompt:
    name: str
    text: str
    created: datetime = field(default_factory=datetime.now)
    version: int = 1


REGISTRY = {
    "greet": Prompt("greet", "You greet visitors of a fair. Be short, and name the hall and the gate."),
    "guide": Prompt(
        "guide",
        "You guide visitors of a fair. Halls have letters, stands have numbers. Never send anybody "
        "through the loading area. If a stand has moved, say where it is now and since when.",
    ),
}


def describe(name):
    prompt = REGISTRY[name]
    return f"{prompt.name} v{prompt.version}, created {prompt.created:%Y-%m-%d}"
