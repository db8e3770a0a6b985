from datetime import datetime

import litellm

RULES = """You are the night nurse's assistant on a ward. Read the chart before you answer.
Never give doses, always name the page of the guideline. Wake the doctor for the signs on page
four, whatever the hour. Keep the language plain and the sentences short."""


def ask(ward, patient, history, text):
    return litellm.completion(
        model="claude-sonnet-4-5",
        messages=[
            {"role": "system", "content": RULES},
            *history,
            {
                "role": "user",
                "content": f"Ward {ward}, patient {patient.name}\n{text}\n({datetime.now():%H:%M})",
            },
        ],
    )
