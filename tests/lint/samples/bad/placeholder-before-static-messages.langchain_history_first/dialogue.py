from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

prompt = ChatPromptTemplate.from_messages(
    [
        ("system", "You turn requests in plain words into queries for a map of cycle paths."),
        MessagesPlaceholder("history"),
        ("human", "A flat tour of about twenty kilometres near a lake"),
        ("ai", '{{"length": [15, 25], "climb": [0, 100], "near": ["lake"], "surface": "any"}}'),
        ("human", "Something for my gravel bike, hilly, half a day, with a station at the end"),
        ("ai", '{{"length": [40, 60], "climb": [600, 1200], "near": [], "surface": "gravel", "ends_at": "station"}}'),
        ("human", "With small children and a playground, no cars"),
        ("ai", '{{"length": [3, 10], "climb": [0, 50], "near": ["playground"], "surface": "paved", "cars": false}}'),
        ("human", "{request}"),
    ]
)
