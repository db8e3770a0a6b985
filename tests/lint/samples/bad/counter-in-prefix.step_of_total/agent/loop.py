from openai import OpenAI

client = OpenAI()
CHARTER = """You repair a failing test suite, one test at a time.
Read the failing test and the code under test before you change anything.
Change the code, not the test, unless the test contradicts the documentation.
Make the smallest change that works and explain it in one sentence.
Run the whole suite after every change and report the number of failures.
Stop when all tests pass or when you would have to touch the public interface."""


def repair(task, run_tool, limit=30):
    history = [{"role": "user", "content": task}]
    for step in range(1, limit + 1):
        system = f"Step {step} of {limit}.\n{CHARTER}"
        reply = client.chat.completions.create(
            model="gpt-4.1",
            messages=[{"role": "system", "content": system}] + history,
        ).choices[0].message
        history.append({"role": "assistant", "content": reply.content})
        if "DONE" in (reply.content or ""):
            return history
        history.append({"role": "user", "content": run_tool(reply.content)})
    return history
