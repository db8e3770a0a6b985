"""Cache models: what an engine or a provider would have served of a prompt."""
