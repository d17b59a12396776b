"""On-call drills: a job is broken for real, `distcommit status` names the cause, and the command that it prints, typed
as it is printed, resolves it. `python -m tests.drills` runs them.

Start with `drill.py`; the situations stand in the modules beside it, a family each.
"""
