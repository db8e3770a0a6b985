from uuid import uuid4

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_anthropic import ChatAnthropic

model = ChatAnthropic(model="claude-sonnet-4-5")
BODY = """You grade essays of a language school from one to six, in half steps.
Grade content, structure, vocabulary and grammar apart, then all together.
Quote one good sentence and one that could be better. Do not rewrite the essay.
Essays below one hundred words are not graded. Write to the pupil, not about them."""


def grade(essay):
    run_id = uuid4().hex
    return model.invoke([SystemMessage(f"run {run_id}\n{BODY}"), HumanMessage(essay)])
