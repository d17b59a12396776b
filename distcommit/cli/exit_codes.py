"""What the command's exit codes mean."""

from __future__ import annotations

EXIT_CODES = """\
[bold]Exit codes[/]
  0  everything went through
  1  something did not: datasets failed, were skipped or are left pending
  2  the job file, an argument or the environment is wrong
  3  another run of the job is alive, or has taken over
  4  storage or source can't be reached: try again later
  5  stored data is corrupt or lost
  6  the audit (or the demo) is not exact, or what is compared differs
130  interrupted, or ended by `distcommit cancel`\
"""
