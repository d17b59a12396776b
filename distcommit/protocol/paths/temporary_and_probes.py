"""Names of short-lived files."""

from __future__ import annotations

TEMPORARY = ".tmp-"
"""Prefix of files that a put writes first."""

OUTPUT_PROBE = ".probe-"
"""Prefix of committers' empty files that check the output."""

ANY_OUTPUT_PROBE = f"{OUTPUT_PROBE}*"
"""Pattern that matches all output probes, for messages."""

STORE_PROBE = "probe-"
"""Prefix of files that check a new store's file system; the next creation deletes leftovers."""


def temporary_name(name: str, nonce: str) -> str:
    """Return the name of the file that a put writes first, with a unique nonce."""
    return f"{TEMPORARY}{name}-{nonce}"


def is_temporary(name: str) -> bool:
    return name.startswith(TEMPORARY)


def lasting_name(name: str) -> str:
    return name.removeprefix(TEMPORARY).rpartition("-")[0] if is_temporary(name) else name


def output_probe_name(bucket: int, nonce: str) -> str:
    return f"{OUTPUT_PROBE}{bucket}-{nonce}"


def probed_bucket(name: str) -> int | None:
    if not name.startswith((OUTPUT_PROBE, TEMPORARY)):  # the common case
        return None
    _, probe, remainder = name.rpartition(OUTPUT_PROBE)
    bucket = remainder.partition("-")[0]
    return int(bucket) if probe and bucket.isdecimal() else None


def store_probe_name(nonce: str) -> str:
    return f"{STORE_PROBE}{nonce}"


def is_store_probe(name: str) -> bool:
    return name.removeprefix(TEMPORARY).startswith(STORE_PROBE)


def table_probe_name(nonce: str) -> str:
    return f"_distcommit-probe-{nonce}"


def is_probe(name: str) -> bool:
    return name.removeprefix(TEMPORARY).startswith((OUTPUT_PROBE, STORE_PROBE))
