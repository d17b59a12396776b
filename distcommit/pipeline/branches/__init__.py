"""The branches of a task flow.

A branch must not know other work units than its own. Start reading at `all_branches`.
"""
