from openai import OpenAI

client = OpenAI()
RULES = "You find the right spare part for a coffee machine. Ask for its model and its year."


def part(question, tenant):
    return client.responses.create(
        model="gpt-5",
        instructions=RULES,
        input=question,
        prompt_cache_key="spare-parts-v2",
        extra_body={"cache_salt": tenant.id},
    )
