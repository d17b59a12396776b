"""The result of planting faults, as a page: which check notices each, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.checkers.planted_faults import PLANTED

_HEAD = """# Planted faults

Written by `python -m tests.checkers planted --table`. Each fault is the product with one slip. `explore`, `interleave`
and `faults` look for it; where they do not come to its code, its tests are run until one fails. Seconds are wall time
of one search, beside others.
"""


def planted_table(results: Sequence[dict[str, Any]]) -> str:
    """Return a page of results of `planted`, a row a fault; a later result of a fault counts."""
    by: dict[str, tuple[str, str]] = {}
    missed: set[str] = set()
    for result in results:
        for name, seen in result["by"].items():
            place = seen["history"] or seen["violation"]
            by[name] = f"`{seen['checker']}` {place}".replace("|", "\\|"), f"{result['seconds_to_find'][name]:.1f}"
            missed.discard(name)
        missed |= {name for name in result["not_found"] if name not in by}
    tried = [fault for fault in PLANTED if fault.name in by or fault.name in missed]
    rows = [
        f"| {fault.kind.value} | {fault.name} | {fault.what} | {' | '.join(by.get(fault.name, ('nothing', '')))} |"
        for fault in tried
    ]
    found = sum(fault.name in by for fault in tried)
    head = ["| class | fault | what is wrong | noticed by | s |", "| --- | --- | --- | --- | ---: |"]
    return "\n".join([_HEAD, f"{found} of {len(tried)} faults noticed.", "", *head, *rows, ""])
