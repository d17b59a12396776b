"""The measured work: trees of staged files, and runs of the product that have reached a certain point."""
