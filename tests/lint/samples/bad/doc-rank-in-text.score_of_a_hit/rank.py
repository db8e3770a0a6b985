from openai import OpenAI

RULES = """You extract structured data from medical letters. Work through the letter from top to bottom.
Collect every diagnosis, every drug with its dose, and every appointment. Keep the original wording.
Write doses in milligrams. Mark anything that is crossed out as uncertain. Do not infer a diagnosis from a drug.
If a letter has several patients, stop and report an error instead of guessing.
Names of doctors are never part of the output. Dates are written as YYYY-MM-DD.
Return an empty list for a section that the letter does not have. Check your output twice."""


def ask(hits, q):
    ctx = "\n".join(f"[{i}] (score {h.score:.4f}) {h.text}" for i, h in enumerate(hits, 1))
    return OpenAI().chat.completions.create(
        model="gpt-4o", messages=[{"role": "system", "content": RULES}, {"role": "user", "content": f"{ctx}\n\n{q}"}]
    )
