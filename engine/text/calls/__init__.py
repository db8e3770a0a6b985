"""Tool calls in a model's text: their formats, how they are read, and how they are fed back."""
