"""HTTP: OpenAI's routes, native ones, administration and metrics."""
