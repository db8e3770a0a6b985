from mem0 import Memory
from openai import OpenAI

client, memory = OpenAI(), Memory()
BASE = """You are a patient companion for people who learn to cook. One step at a time.
Ask what is in the fridge before you suggest anything. Raw chicken never touches salad."""


def chat(message, history, user_id):
    found = memory.search(query=message, user_id=user_id, limit=3)
    memories = "\n".join(f"- {entry['memory']}" for entry in found["results"])
    system = BASE
    system += "\nUser memories:\n" + memories
    messages = [{"role": "system", "content": system}] + history
    messages.append({"role": "user", "content": message})
    return client.chat.completions.create(model="gpt-4o-mini", messages=messages)
