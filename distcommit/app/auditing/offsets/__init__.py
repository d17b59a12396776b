"""Source offsets that files and ledgers account for: by epoch, by branch, and by two datasets at once. Must not change
anything. Start reading at `branch_coverage`.
"""
