"""What is measured: trees of staged files, and runs of the product that have been brought to a certain point."""
