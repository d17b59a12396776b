"""The result of planting faults, as a page: the check that notices each, and its time."""

from __future__ import annotations

import re
from typing import Any

from tests.checkers.planted_faults import PLANTED

_HEAD = """# Planted faults

Written by `python -m tests.checkers planted --table`. Each fault is the product with one slip. `explore`, `interleave`
and `faults` look for it; where they do not come to its code, its tests are run until one fails. What is found is run
once more on the sound product, which has to pass. Seconds are wall time of one search, beside others; they depend on
what else the machine does. A search for some of the faults leaves the rows of the others as they are.
"""
_ROW = re.compile(r"^\| [^|]+ \| ([^|]+) \| ", re.MULTILINE)


def planted_table(result: dict[str, Any], before: str = "") -> str:
    """Return a page of a result of `planted`, a row for each fault; `before`: the page of earlier results, for other
    faults."""
    rows = {match[1]: line for line in before.splitlines() if (match := _ROW.match(line))}
    kinds = {fault.name: fault for fault in PLANTED}
    for name in (*result["by"], *result["not_found"]):
        seen, seconds = result["by"].get(name), result["seconds_to_find"].get(name)
        by = f"`{seen['checker']}` {seen['history'] or seen['violation']}".replace("|", "\\|") if seen else "nothing"
        shown = "" if seconds is None else f"{seconds:.1f}"
        rows[name] = f"| {kinds[name].kind.value} | {name} | {kinds[name].what} | {by} | {shown} |"
    tried = [name for name in kinds if name in rows]
    noticed = sum("| nothing |" not in rows[name] for name in tried)
    head = ["| class | fault | what is wrong | noticed by | s |", "| --- | --- | --- | --- | ---: |"]
    count = (
        f"{noticed} of {len(tried)} faults noticed; {len(kinds) - len(tried)} more are planted that have no row here."
    )
    return "\n".join([_HEAD, count, "", *head, *(rows[name] for name in tried), ""])
