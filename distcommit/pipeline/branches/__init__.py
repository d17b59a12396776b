"""The branches of a task flow: chains of constructs, the fork, writers, and rejected records.

Must not know other work units. Start reading at `branching`.
"""
