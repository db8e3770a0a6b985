import litellm


class Agent:
    def __init__(self, prompt, rules):
        self.messages = [{"role": "system", "content": ""}]
        self.messages[0]["content"] = prompt + rules

    def step(self, observation):
        self.messages.append({"role": "user", "content": "Observation: " + observation})
        return litellm.completion(model="gpt-4o", messages=self.messages)
