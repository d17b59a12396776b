"""Generator of conf/docs/reference/problems.md from the problem catalogue.

Run `python -m tests.unit.app.inspection.problems_page`.
"""

from __future__ import annotations

from pathlib import Path

import distcommit
from distcommit.app.inspection.problems.catalogue import problems_page

PAGE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "reference" / "problems.md"

if __name__ == "__main__":
    PAGE.write_text(problems_page(), encoding="utf-8")
