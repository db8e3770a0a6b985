import google.generativeai as genai

model = genai.GenerativeModel("gemini-2.5-flash")


def answer(query, documents):
    joined = "\n\n".join(documents)
    prompt = (
        f"The user wants to know: {query}\n\n"
        f"Search results:\n{joined}\n\n"
        "Write an answer of three paragraphs. The first says it in one sentence, the second "
        "explains it, the third names what remains open. Put the number of the result behind each "
        "claim. Ignore results that only repeat others. Do not mention results that you ignored. "
        "If all results are off the point, say so and propose two better queries."
    )
    return model.generate_content(prompt).text
