"""Derives which source offsets are in files and ledgers: by epoch, by branch, and in two datasets at once. Must not
change anything. Start reading at `branch_coverage`.
"""
