"""Names of short-lived files: files that a put writes first, and probes of a file system."""

from __future__ import annotations

TEMPORARY = ".tmp-"
"""Prefix of the name under which a put writes a file before it renames the file."""

OUTPUT_PROBE = ".probe-"
"""Prefix of the files by which committers check that the output is writable. They contain no records."""

ANY_OUTPUT_PROBE = f"{OUTPUT_PROBE}*"
"""Pattern that matches all output probes, for messages."""

STORE_PROBE = "probe-"
"""Prefix of files by which the creation of a store checks its file system. A file may remain after a disk failure; the
next creation of a store deletes it."""


def temporary_name(name: str, nonce: str) -> str:
    """Return the name under which a put first writes the file of that name. The nonce is unique."""
    return f"{TEMPORARY}{name}-{nonce}"


def is_temporary(name: str) -> bool:
    """Return whether a put writes under that name first."""
    return name.startswith(TEMPORARY)


def lasting_name(name: str) -> str:
    """Return the final name of a file, given its final or its temporary name."""
    return name.removeprefix(TEMPORARY).rpartition("-")[0] if is_temporary(name) else name


def output_probe_name(bucket: int, nonce: str) -> str:
    """Return the name of a file by which a bucket's committer checks the output. The nonce is unique."""
    return f"{OUTPUT_PROBE}{bucket}-{nonce}"


def probed_bucket(name: str) -> int | None:
    """Return the bucket in a name of `output_probe_name`; None for any other name."""
    if not name.startswith((OUTPUT_PROBE, TEMPORARY)):  # the common case
        return None
    _, probe, remainder = name.rpartition(OUTPUT_PROBE)
    bucket = remainder.partition("-")[0]
    return int(bucket) if probe and bucket.isdecimal() else None


def store_probe_name(nonce: str) -> str:
    """Return the name of a file by which the creation of a store checks its file system. The nonce is unique."""
    return f"{STORE_PROBE}{nonce}"


def is_store_probe(name: str) -> bool:
    """Return whether a file or folder name begins like a name of `store_probe_name`."""
    return name.removeprefix(TEMPORARY).startswith(STORE_PROBE)


def table_probe_name(nonce: str) -> str:
    """Return the name of a file by which a sink checks a location of table data files. The nonce is unique."""
    return f"_distcommit-probe-{nonce}"


def is_probe(name: str) -> bool:
    """Return whether a name is that of a file system probe below any root."""
    return name.removeprefix(TEMPORARY).startswith((OUTPUT_PROBE, STORE_PROBE))
