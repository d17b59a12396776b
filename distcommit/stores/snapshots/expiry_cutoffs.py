"""What retention was asked to take, durable before anything of it goes: for people, and for readers of what was there.

<store>/horizons/<number>.json

What has really gone of a dataset its tombstones say; nothing else depends on these documents.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from distcommit.core.errors import DistcommitError
from distcommit.core.ports import FileSystem
from distcommit.protocol.paths.store import HORIZONS, number_of, numbered_name
from distcommit.stores.state.documents import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

HORIZON_VERSION = 1


class RetentionHorizon(msgspec.Struct, frozen=True):
    """What was published of before `before_ms` is to go, as `who` has asked at `asked_ms` (milliseconds since 1970).

    Readers of cuts of epochs up to `after_epoch`, the newest run's then, may miss it.
    """

    version: int
    before_ms: int
    asked_ms: int
    who: str
    after_epoch: int


def put_horizon(store: JobStore, before_ms: int, asked_ms: int, who: str) -> RetentionHorizon:
    """Says durably what is to go. Raises DistcommitError, OSError if that can't be done."""
    fs, folder = store.fs, f"{store.roots.store}/{HORIZONS}"
    epoch = store.job_log().refresh().fence_epoch
    horizon = RetentionHorizon(HORIZON_VERSION, before_ms, asked_ms, who, epoch)
    fs.make_folders(folder)
    number = max(_numbers(fs, folder), default=0) + 1
    while not fs.put_if_absent(f"{folder}/{numbered_name(number)}", encode_document(horizon)):
        number += 1
    fs.sync([folder], store.roots.store)
    return horizon


def newest_horizon(store: JobStore) -> RetentionHorizon | None:
    """What was asked for last; None if nothing ever was.

    Raises:
        CorruptError, UnknownVersionError: if it can't be read.
    """
    fs, folder = store.fs, f"{store.roots.store}/{HORIZONS}"
    newest = max(_numbers(fs, folder), default=None)
    if newest is None:
        return None
    path = f"{folder}/{numbered_name(newest)}"
    return decode_document(fs.read(path), RetentionHorizon, HORIZON_VERSION, "a horizon", path)


def known_horizon(store: JobStore) -> RetentionHorizon | None:
    """The same; None also if it can't be read, as nothing but people depends on it."""
    try:
        return newest_horizon(store)
    except (DistcommitError, OSError) as error:
        logger.warning("what retention was asked for can't be told: %s", error)
        return None


def taken_by_retention(store: JobStore, is_older: Callable[[RetentionHorizon], bool]) -> str:
    """That what a reader asks for was taken on purpose, for the text of an error; empty if it was not, or if nobody can
    tell.

    Args:
        store: the job's.
        is_older: whether it was there before that was asked for.
    """
    horizon = known_horizon(store)
    if horizon is None or not is_older(horizon):
        return ""
    return f", taken by retention: {horizon.who} has asked for what is older than {shown_ms(horizon.before_ms)} to go"


def shown_ms(time_ms: int) -> str:
    """A time for people, in UTC."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _numbers(fs: FileSystem, folder: str) -> list[int]:
    return [number for entry in fs.list_folder(folder) if (number := number_of(entry.name)) is not None]
