"""Descriptions of a ratio's two sides: whole folders or file by file, durable or not; printed with each ratio."""

from __future__ import annotations

import re

_FOLDERS, _FILES = "new folders as wholes", "file by file"
_THERE = "file by file into folders that are there"
_DURABLE, _NOTHING = "durable", "nothing synced"
_WORK = (
    (r"ours_into_folders\w*", f"{_THERE}, {_DURABLE}"),
    (r"ours_not_durable", f"{_FOLDERS}, {_NOTHING}"),
    (r"ours\w*", f"{_FOLDERS}, {_DURABLE}"),
    (r"bare_into_folders_\w*sync", f"{_THERE}, {_DURABLE}"),
    (r"bare_into_folders\w*", f"{_THERE}, {_NOTHING}"),
    (r"bare_folders_\w*sync", f"{_FOLDERS}, {_DURABLE}"),
    (r"bare_folders\w*", f"{_FOLDERS}, {_NOTHING}"),
    (r"bare_\w*sync\w*", f"{_FILES}, {_DURABLE}"),
    (r"bare\w*", f"{_FILES}, {_NOTHING}"),
    (r"gobblin_fsync\w*|file_per_step_fsync", f"{_FILES}, {_DURABLE}, without Spark"),
    (r"gobblin\w*", f"{_FILES}, {_NOTHING}, without Spark"),
    (r"v1_new_folders", f"{_FOLDERS}, {_NOTHING}"),
    (r"(v1|v2|manifest)\w*", f"{_FILES}, {_NOTHING}"),
    (r"(deltalake|pyiceberg)\w*", f"an entry in a table's log, no file is moved, {_NOTHING}"),
)
_RATIO = re.compile(r"(?:latency_|operations_|requests_|marginal_)?(\w+?)_over_(\w+?)(?:_low|_high)?")
_EVERYDAY = ("ours_over_manifest_on_hdfs", f"{_THERE}, {_DURABLE}", f"{_THERE}, {_NOTHING}")


def compared(question: str, ratio: str) -> str:
    """Return the comparison of a ratio of the questions `commit`, `latency` (on HDFS, too) and `everyday`; empty for
    all others.

    Args:
        question: the question.
        ratio: its name, `<arm>_over_<arm>`.
    """
    match = _RATIO.fullmatch(ratio)
    if match is None or question not in {"commit", "latency", "latency_on_hdfs", "everyday"}:
        return ""
    if question == "everyday" and _EVERYDAY[0] in ratio:
        own, theirs = _EVERYDAY[1:]
    else:
        own, theirs = (_work_of(arm) for arm in match.groups())
    if not own or not theirs:
        return ""
    return f"equal work: {own}" if own == theirs else f"unequal work: {own}, against {theirs}"


def _work_of(arm: str) -> str:
    return next((work for pattern, work in _WORK if re.fullmatch(pattern, arm)), "")
