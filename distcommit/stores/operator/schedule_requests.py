"""What people ask of services that run the job, from any machine that reaches the store.

<store>/schedule/paused.json              that it is not to run by its schedule, until this is gone
<store>/schedule/<32 hex>-trigger.json    that it is to run once; gone once a run that began later has its epoch

What is published depends on none of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from distcommit.core.errors import DistcommitError, storage_error
from distcommit.core.ports import FileSystem
from distcommit.protocol.paths.store import PAUSED, SCHEDULE, is_trigger, trigger_name
from distcommit.stores.state.documents import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

REQUEST_VERSION = 1


class ScheduleRequest(msgspec.Struct, frozen=True):
    """Who asks, and since when."""

    version: int
    who: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Asked:
    """All that people ask. `paused`: who has paused the job, None if nobody; `triggers`: names of wishes for a run."""

    paused: ScheduleRequest | None = None
    triggers: frozenset[str] = frozenset()


def read_asked(fs: FileSystem, store_root: str) -> Asked:
    """What people ask; one listing, unless it is paused. A pause that can't be read counts as one of nobody known:
    whoever put it can have wanted nothing else."""
    folder = f"{store_root}/{SCHEDULE}"
    names = {entry.name for entry in fs.list_folder(folder)}
    paused = _read_pause(fs, f"{folder}/{PAUSED}") if PAUSED in names else None
    return Asked(paused, frozenset(filter(is_trigger, names)))


def _read_pause(fs: FileSystem, path: str) -> ScheduleRequest | None:
    try:
        return decode_document(fs.read(path), ScheduleRequest, REQUEST_VERSION, "the request to pause a job", path)
    except FileNotFoundError:
        return None
    except (DistcommitError, OSError):
        return ScheduleRequest(REQUEST_VERSION, "somebody", 0)


def paused_by(fs: FileSystem, store_root: str) -> str:
    """Who has paused the job; empty if nobody has, or it can't be read."""
    try:
        paused = read_asked(fs, store_root).paused
    except OSError:
        return ""
    return paused.who if paused else ""


def put_pause(store: JobStore, who: str, at_ms: int) -> bool:
    """Pauses the job, durably; False if it is paused already.

    Raises:
        DistcommitError: if the store can't be written.
    """
    return _put(store, PAUSED, ScheduleRequest(REQUEST_VERSION, who, at_ms))


def delete_pause(store: JobStore) -> bool:
    """Lets the job run by its schedule again, durably; False if it was not paused. Raises as `put_pause`."""
    folder = f"{store.roots.store}/{SCHEDULE}"
    try:
        deleted = store.fs.delete(f"{folder}/{PAUSED}")
        if deleted:
            store.fs.sync([folder], store.roots.store)
    except OSError as error:
        raise storage_error(error, "the job can't be resumed", path=f"{folder}/{PAUSED}") from error
    return deleted


def put_trigger(store: JobStore, who: str, at_ms: int) -> str:
    """Asks for a run, durably. Raises as `put_pause`.

    Returns:
        the name of the wish, which is among the `Asked` until it is taken.
    """
    name = trigger_name(uuid.uuid4().hex)
    _put(store, name, ScheduleRequest(REQUEST_VERSION, who, at_ms))
    return name


def take_triggers(fs: FileSystem, store_root: str, names: Iterable[str]) -> None:
    """Takes wishes away that have come true. Raises OSError if the store can't be written."""
    for name in names:
        fs.delete(f"{store_root}/{SCHEDULE}/{name}")


def _put(store: JobStore, name: str, request: ScheduleRequest) -> bool:
    folder = f"{store.roots.store}/{SCHEDULE}"
    try:
        store.fs.make_folders(folder)
        put = store.fs.put_if_absent(f"{folder}/{name}", encode_document(request))
        store.fs.sync([folder], store.roots.store)
    except OSError as error:
        raise storage_error(error, "what is asked of the job's service can't be written", path=folder) from error
    return put
