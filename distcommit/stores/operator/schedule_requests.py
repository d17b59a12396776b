"""Requests of operators to services that run the job, from any machine that reaches the store.

<store>/schedule/paused.json              the job's schedule is suspended as long as this file exists
<store>/schedule/<32 hex>-trigger.json    run the job once; deleted when a run that started later has its epoch

Publishing does not depend on these files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.protocol.paths.store import PAUSED, SCHEDULE, is_trigger, trigger_name
from distcommit.stores.state.checksummed_json import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

REQUEST_VERSION = 1


class ScheduleRequest(msgspec.Struct, frozen=True):
    """A request of an operator. A command writes it, and services of the job read it.

    Attributes:
        version: format version of the file.
        requested_by: the operator who requested it.
        at_ms: time of the request, in milliseconds since 1970.
    """

    version: int
    requested_by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ScheduleRequests:
    """The store's requests.

    Attributes:
        paused: the suspension, or None.
        triggers: file names of requests for a run.
    """

    paused: ScheduleRequest | None = None
    triggers: frozenset[str] = frozenset()


def read_requests(fs: FileSystem, store_root: str) -> ScheduleRequests:
    """Return the requests, by one listing and, if paused, one read.

    An unreadable pause counts as a pause by an unknown user.
    """
    folder = f"{store_root}/{SCHEDULE}"
    names = {entry.name for entry in fs.list_folder(folder)}
    paused = _read_pause(fs, f"{folder}/{PAUSED}") if PAUSED in names else None
    return ScheduleRequests(paused, frozenset(filter(is_trigger, names)))


def _read_pause(fs: FileSystem, path: str) -> ScheduleRequest | None:
    try:
        return decode_document(fs.read(path), ScheduleRequest, REQUEST_VERSION, "the request to pause a job", path)
    except FileNotFoundError:
        return None
    except (DistcommitError, OSError):
        return ScheduleRequest(REQUEST_VERSION, "somebody", 0)


def paused_by(fs: FileSystem, store_root: str) -> str:
    """Return the user who paused the job; empty if it is not paused or the store cannot be listed."""
    try:
        paused = read_requests(fs, store_root).paused
    except OSError:
        return ""
    return paused.requested_by if paused else ""


def put_pause(store: JobStore, user: str, at_ms: int) -> bool:
    """Pause the job, durably; return False if it was paused already.

    Raises:
        DistcommitError: if the store cannot be written.
    """
    return _put(store, PAUSED, ScheduleRequest(REQUEST_VERSION, user, at_ms))


def delete_pause(store: JobStore) -> bool:
    """Resume the schedule, durably; return False if it was not paused. Raise DistcommitError."""
    folder = f"{store.roots.store}/{SCHEDULE}"
    try:
        deleted = store.fs.delete(f"{folder}/{PAUSED}")
        if deleted:
            store.fs.sync([folder], store.roots.store)
    except OSError as error:
        raise storage_error(error, "the job's schedule cannot be resumed", path=f"{folder}/{PAUSED}") from error
    return deleted


def put_trigger(store: JobStore, user: str, at_ms: int) -> str:
    """Request a run, durably. Raise DistcommitError.

    Returns:
        the request's name in `triggers`, which has it until a service has taken the request.
    """
    name = trigger_name(uuid.uuid4().hex)
    _put(store, name, ScheduleRequest(REQUEST_VERSION, user, at_ms))
    return name


def delete_triggers(fs: FileSystem, store_root: str, names: Iterable[str]) -> None:
    """Delete the requests that runs have begun for. Raise OSError."""
    for name in names:
        fs.delete(f"{store_root}/{SCHEDULE}/{name}")


def _put(store: JobStore, name: str, request: ScheduleRequest) -> bool:
    folder = f"{store.roots.store}/{SCHEDULE}"
    try:
        store.fs.make_folders(folder)
        put = store.fs.put_if_absent(f"{folder}/{name}", encode_document(request))
        store.fs.sync([folder], store.roots.store)
    except OSError as error:
        raise storage_error(error, "a request to the job's service cannot be written", path=folder) from error
    return put
