from datetime import datetime

from haystack import Pipeline
from haystack.components.builders import PromptBuilder
from haystack.components.generators import OpenAIGenerator

TEMPLATE = """It is {{ now }}.
You compare offers of travel agencies for families. List for every offer what it costs with all
fees, how long the journey takes from door to door, and what is not included.
Do not recommend anything. Use the currency of the first offer. Sort by price, the lowest first.
Mark offers without a right to cancel with a star and explain the star below the list.

{% for offer in offers %}
{{ offer.text }}
{% endfor %}"""

pipeline = Pipeline()
pipeline.add_component("prompt", PromptBuilder(template=TEMPLATE))
pipeline.add_component("llm", OpenAIGenerator(model="gpt-4o-mini"))
pipeline.connect("prompt", "llm")


def compare(offers):
    return pipeline.run({"prompt": {"offers": offers, "now": datetime.now().isoformat()}})
