from openai import OpenAI

client = OpenAI()
STEPS = (
    "Read the failing test and the code under test before you change anything.",
    "Change the code, not the test, unless the test contradicts the documentation.",
    "Make the smallest change that works and explain it in one sentence.",
    "Run the whole suite after every change and report the number of failures.",
    "Stop when all tests pass or when you would have to touch the public interface.",
)
CHARTER = "You repair a failing test suite.\n" + "\n".join(
    f"Step {n} of {len(STEPS)}: {text}" for n, text in enumerate(STEPS, 1)
)


def repair(task, run_tool, limit=30):
    messages = [{"role": "system", "content": CHARTER}, {"role": "user", "content": task}]
    for step in range(1, limit + 1):
        print(f"step {step} of {limit}")
        reply = client.chat.completions.create(model="gpt-4.1", messages=messages).choices[0].message
        messages.append({"role": "assistant", "content": reply.content})
        if "DONE" in (reply.content or ""):
            break
        messages.append({"role": "user", "content": run_tool(reply.content)})
    return messages
