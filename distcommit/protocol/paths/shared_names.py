"""Parts of names below several roots."""

from __future__ import annotations

import re

OWNERSHIP_FOLDER = ".distcommit"
"""Folder in the staging and the output root that records its owner. No dataset's folder starts with a dot."""

OWNER = "owner.json"
"""File in `OWNERSHIP_FOLDER` that names the owner."""

_WORK_UNIT = re.compile(r"(\d{5,})_\d{6,}")


def bucket_name(bucket: int) -> str:
    """Return the folder name of a bucket."""
    return f"bucket={bucket:05d}"


def bucket_number(name: str) -> int | None:
    """Return the bucket of a folder name; None for other names."""
    digits = name.removeprefix("bucket=")
    return int(digits) if digits.isdecimal() and digits.isascii() and bucket_name(int(digits)) == name else None


def epoch_name(epoch: int) -> str:
    """Return the folder name of an epoch."""
    return f"{epoch:010d}"


def work_unit_name(bucket: int, number: int) -> str:
    """Return the id of a work unit, unique in its run."""
    return f"{bucket:05d}_{number:06d}"


def bucket_of_work_unit(work_unit_id: str) -> int | None:
    """Return the bucket in a work unit's id; None if it has another form."""
    match = _WORK_UNIT.fullmatch(work_unit_id)
    return int(match[1]) if match else None
