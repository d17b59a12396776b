"""Exit codes of commands. A failed command has the exit code of its error's class, see `core.errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distcommit.engine.driver.run import RunResult

RECORDS_LOST = 7
"""Exit code of `run` if it committed everything, but the source had deleted records before they were read."""
EXIT_CODES = """\
  0  success
  1  incomplete: datasets failed, were skipped or are still pending
  2  the job file, an argument or the environment is wrong
  3  another run of the job is alive, or has taken over
  4  storage or source is unavailable; retry later
  5  stored data is corrupt or lost
  6  the audit (or the demo) is not exact, or the compared positions differ
  7  the run committed everything; the source had deleted records before they were read
130  interrupted (Ctrl-C, SIGTERM, closed terminal), or ended by `distcommit cancel`
"""


def exit_code_of(result: RunResult) -> int:
    """Return the exit code of `distcommit run`."""
    if not result.succeeded:
        return 1
    return RECORDS_LOST if result.totals.positions_lost else 0
