from openai import OpenAI

client = OpenAI()


def make_prompt(context, question):
    prompt = context + "\n\n"
    prompt += "Use the pieces of context above to answer the question below. "
    prompt += "Keep to three sentences. Name the chapter. If the context does not help, say that you "
    prompt += "do not know, and do not make anything up. Answer in the language of the question. "
    prompt += "Do not begin with 'According to'. Numbers keep their unit. Tables become sentences. "
    prompt += "Laws are quoted with their paragraph. Do not give advice.\n"
    prompt += f"Question: {question}"
    return prompt


def ask(retriever, question):
    context = "\n".join(d.page_content for d in retriever.get_relevant_documents(question))
    prompt = make_prompt(context, question)
    return client.chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": prompt}]
    )
