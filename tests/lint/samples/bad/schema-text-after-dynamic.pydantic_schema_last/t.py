import json

from openai import OpenAI
from pydantic import BaseModel


class Event(BaseModel):
    title: str
    day: str
    place: str
    price: float | None


SCHEMA = json.dumps(Event.model_json_schema())


def events(article):
    prompt = f"Read this article.\n\n{article}\n\nList its events as JSON by this schema:\n{SCHEMA}"
    return OpenAI().responses.create(model="gpt-4.1", input=prompt)
