from collections import Counter

from openai import OpenAI

BRIEF = """You name columns of a newspaper after what its readers write about.
A name has one or two words, is easy to say and does not exist in any other newspaper.
It must not contain the name of a person, a place or a company.
Avoid words that were in fashion for one summer only.
Give five names, the best first, and half a sentence for each of them."""


def name_column(letters):
    counts = Counter(word for letter in letters for word in letter.split())
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:20]
    print("most frequent:", counts.most_common(1))
    return OpenAI().chat.completions.create(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": BRIEF},
            {"role": "user", "content": "Frequent words: " + ", ".join(w for w, _ in ranked)},
        ],
    )
