import anthropic

RULES = """You extract structured data from medical letters. Work through the letter from top to bottom.
Collect every diagnosis, every drug with its dose, and every appointment. Keep the original wording.
Write doses in milligrams. Mark anything that is crossed out as uncertain. Do not infer a diagnosis from a drug.
If a letter has several patients, stop and report an error instead of guessing.
Names of doctors are never part of the output. Dates are written as YYYY-MM-DD.
Return an empty list for a section that the letter does not have. Check your output twice."""


def ask(store, q):
    found = store.similarity_search_with_score(q, k=4)
    parts = []
    for doc, score in sorted(found, key=lambda p: p[0].id):
        print(f"score={score:.3f}")
        parts.append(f"[{doc.id}] {doc.page_content}")
    return anthropic.Anthropic().messages.create(
        model="claude-sonnet-4-5",
        max_tokens=10,
        system=RULES,
        messages=[{"role": "user", "content": "\n".join(parts) + "\n\n" + q}],
    )
