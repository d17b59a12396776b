"""Operators' requests to expire old files, durable before any file is deleted.

<store>/expiry_requests/<number>.json

Operators, and readers that miss files, see in them which files have expired. The protocol does not depend on them:
tombstones list the expired files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.protocol.paths.store import EXPIRY_REQUESTS, number_of, numbered_name
from distcommit.stores.state.checksummed_json import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

EXPIRY_REQUEST_VERSION = 1


class ExpiryRequest(msgspec.Struct, frozen=True):
    """A request to expire old files.

    Attributes:
        version: format version.
        cutoff_ms: files published before this time expire, in milliseconds since 1970.
        requested_ms: time of the request, in milliseconds since 1970.
        requested_by: the user who requested it.
        after_epoch: epoch of the newest run at that time. Readers of snapshots of epochs up to this one may miss files.
    """

    version: int
    cutoff_ms: int
    requested_ms: int
    requested_by: str
    after_epoch: int


def put_expiry_request(store: JobStore, before_ms: int, asked_ms: int, user: str) -> ExpiryRequest:
    """Record a request durably, with the newest epoch, and return it. Raise DistcommitError or OSError."""
    fs, folder = store.fs, f"{store.roots.store}/{EXPIRY_REQUESTS}"
    epoch = store.job_log().refresh().fence_epoch
    cutoff = ExpiryRequest(EXPIRY_REQUEST_VERSION, before_ms, asked_ms, user, epoch)
    fs.make_folders(folder)
    number = max(_numbers(fs, folder), default=0) + 1
    while not fs.put_if_absent(f"{folder}/{numbered_name(number)}", encode_document(cutoff)):
        number += 1
    fs.sync([folder], store.roots.store)
    return cutoff


def newest_expiry_request(store: JobStore) -> ExpiryRequest | None:
    """Return the newest request, or None. Raise CorruptError or UnknownVersionError."""
    fs, folder = store.fs, f"{store.roots.store}/{EXPIRY_REQUESTS}"
    newest = max(_numbers(fs, folder), default=None)
    if newest is None:
        return None
    path = f"{folder}/{numbered_name(newest)}"
    return decode_document(fs.read(path), ExpiryRequest, EXPIRY_REQUEST_VERSION, "a horizon", path)


def readable_expiry_request(store: JobStore) -> ExpiryRequest | None:
    """Return the newest request; None if there is none or it cannot be read."""
    try:
        return newest_expiry_request(store)
    except (DistcommitError, OSError) as error:
        logger.warning("the expiry cutoff is unknown: %s", error)
        return None


def expiry_note(store: JobStore, is_older: Callable[[ExpiryRequest], bool]) -> str:
    """Return a note for an error about missing files; empty if they have not expired.

    Args:
        is_older: returns whether the files are older than the cutoff of a request.
    """
    cutoff = readable_expiry_request(store)
    if cutoff is None or not is_older(cutoff):
        return ""
    return f", expired: {cutoff.requested_by} requested the deletion of files older than {shown_ms(cutoff.cutoff_ms)}"


def shown_ms(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _numbers(fs: FileSystem, folder: str) -> list[int]:
    return [number for entry in fs.list_folder(folder) if (number := number_of(entry.name)) is not None]
