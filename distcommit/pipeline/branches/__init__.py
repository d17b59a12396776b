"""The branches of a task flow: chains of converters and checkers, the fork, writers, and rejected records.

A branch knows one work unit only. Start reading at `branching`.
"""
