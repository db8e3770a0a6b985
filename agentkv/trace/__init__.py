"""Request logs: replayed on a radix tree, to say what was lost, to what, and which line did it."""
