"""One module for each question: which workload, which arms, and what the ratios are."""
