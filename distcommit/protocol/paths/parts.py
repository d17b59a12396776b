"""What names below several roots are made of: the store, the staging root, the output root."""

from __future__ import annotations

import re

CLAIM_FOLDER = ".distcommit"
"""Folder in the staging and the output root that says whose they are; no dataset's folder begins with a dot."""

OWNER = "owner.json"
"""In there: whose they are."""

_WORK_UNIT = re.compile(r"(\d{5,})_\d{6,}")


def bucket_name(bucket: int) -> str:
    """Folder name of a bucket."""
    return f"bucket={bucket:05d}"


def bucket_number(name: str) -> int | None:
    """The bucket of such a folder name, None for any other name."""
    digits = name.removeprefix("bucket=")
    return int(digits) if digits.isdecimal() and digits.isascii() and bucket_name(int(digits)) == name else None


def epoch_name(epoch: int) -> str:
    """Folder name of a run's epoch."""
    return f"{epoch:010d}"


def work_unit_name(bucket: int, number: int) -> str:
    """The id of a work unit in its run: of a bucket's datasets, by number."""
    return f"{bucket:05d}_{number:06d}"


def bucket_of_work_unit(work_unit_id: str) -> int | None:
    """The bucket of the dataset of such a work unit, None if it is no id of one."""
    found = _WORK_UNIT.fullmatch(work_unit_id)
    return int(found[1]) if found else None
