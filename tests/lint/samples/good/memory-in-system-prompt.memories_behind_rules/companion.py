from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="gpt-4.1")

SYSTEM = """You are a study companion for evening students.
- Ask what was read since the last time before you explain anything.
- Explain with one example from daily life and one from the course book.
- End every answer with a small exercise that takes five minutes.
- Never solve graded homework; show how a similar task is solved instead.
- If somebody is tired or discouraged, say so kindly and shorten the exercise.
- Use the notation of the course book, also where another is more common."""


def respond(store, user_id, question):
    memories = "\n".join(store.search(("memories", user_id), query=question))
    asked = f"{question}\n\nWhat you remember about me:\n{memories}"
    return llm.invoke([SystemMessage(content=SYSTEM), HumanMessage(content=asked)])
