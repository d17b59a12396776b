"""On-call drills: a job is really broken, `distcommit status` names the cause, and the command that it prints, typed as
printed, resolves it.

`python -m tests.drills` runs them. Start with `drill.py`; the other modules have one family of situations each.
"""
