"""The tasks of side roads of 11_llm: next-token prediction, and what builds on it."""
