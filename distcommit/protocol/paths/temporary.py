"""Names of what is there for a moment: files that a put writes first, and probes of a file system."""

from __future__ import annotations

TEMPORARY = ".tmp-"
"""Prefix of names under which a put writes first; nobody else reads or makes them."""

OUTPUT_PROBE = ".probe-"
"""Start of the names by which committers try whether the output can be written at all; not data."""

ANY_OUTPUT_PROBE = f"{OUTPUT_PROBE}*"
"""Stands for all of them where a person reads."""

STORE_PROBE = "probe-"
"""Start of the names with which a store that is made tries its file system; not data. One may stay where the disk
failed just then; the next who makes a store sweeps it."""


def temporary_name(name: str, nonce: str) -> str:
    """Under which a put writes first what is to have that name; the nonce is nobody else's."""
    return f"{TEMPORARY}{name}-{nonce}"


def is_temporary(name: str) -> bool:
    """Whether a put has written, or writes, under that name first."""
    return name.startswith(TEMPORARY)


def lasting_name(name: str) -> str:
    """The name that a file is to have in the end, which may have it already."""
    return name.removeprefix(TEMPORARY).rpartition("-")[0] if is_temporary(name) else name


def output_probe_name(bucket: int, nonce: str) -> str:
    """Name of a file by which a committer of that bucket tries the output; the nonce is nobody else's."""
    return f"{OUTPUT_PROBE}{bucket}-{nonce}"


def probed_bucket(name: str) -> int | None:
    """The bucket of the committer that has tried the output with a file of that name, None for any other file."""
    if not name.startswith((OUTPUT_PROBE, TEMPORARY)):  # nearly always
        return None
    _, probe, rest = name.rpartition(OUTPUT_PROBE)
    bucket = rest.partition("-")[0]
    return int(bucket) if probe and bucket.isdecimal() else None


def store_probe_name(nonce: str) -> str:
    """Name of a file with which a store that is made tries its file system; the nonce is nobody else's."""
    return f"{STORE_PROBE}{nonce}"


def is_store_probe(name: str) -> bool:
    """Whether a store that is made has tried its file system with a file, or folder, of that name."""
    return name.removeprefix(TEMPORARY).startswith(STORE_PROBE)


def table_probe_name(nonce: str) -> str:
    """Name of a file by which a sink tries a place where tables have their data files; the nonce is nobody else's."""
    return f"_distcommit-probe-{nonce}"


def is_probe(name: str) -> bool:
    """Whether that is the name of a file by which somebody tried the file system, below any root."""
    return name.removeprefix(TEMPORARY).startswith((OUTPUT_PROBE, STORE_PROBE))
