"""What help says below the commands: what words and exit codes mean."""

from __future__ import annotations

WORDS = """\
[bold]Words[/]
  dataset      what is read and published as one, such as a topic
  watermark    how far a dataset is published, from where the next run reads on
  epoch        a run's number, above those of all runs before it
  staged       written, where no reader looks
  sealed       staged, and written down with the steps that publish it
  replay       what a run does first: finish what is sealed, whoever died
  bucket       a share of the datasets, which have a log in common
  cut          what readers see: all datasets, as of one moment
  quarantined  left alone by runs, as it can't be finished: until `release`\
"""
RECORDS_LOST = 7
"""What `run` ends with if all went through and records were lost at the source."""
EXIT_CODES = """\
[bold]Exit codes[/]
  0  everything went through
  1  something did not: datasets failed, were skipped or are left pending
  2  the job file, an argument or the environment is wrong
  3  another run of the job is alive, or has taken over
  4  storage or source can't be reached: try again later
  5  stored data is corrupt or lost
  6  the audit (or the demo) is not exact, or what is compared differs
  7  the run committed all, and the source had deleted records before they were read
130  interrupted, or ended by `distcommit cancel`\
"""
