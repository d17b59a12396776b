"""The branches of a task flow: chains of constructs, the fork, writers, and rejected records.

A branch must not know other work units than its own. Start reading at `all_branches`.
"""
