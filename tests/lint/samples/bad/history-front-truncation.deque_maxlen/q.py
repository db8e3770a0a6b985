from collections import deque

from ollama import chat

SYSTEM = {"role": "system", "content": "You tell a story together with a child, two sentences a turn."}
recent = deque(maxlen=8)


def turn(text):
    recent.append({"role": "user", "content": text})
    answer = chat(model="llama3.2", messages=[SYSTEM, *recent])["message"]
    recent.append(answer)
    return answer["content"]
