"""One module for each question: its workload, its arms, and its ratios."""
