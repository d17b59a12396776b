"""The settings that a store pins: recorded by the first run, compared ever after.

<store>/settings/<number>.json     each has all of the one before, and more; the newest counts

A document is put if absent and never changed, so that of two runs with different settings one finds out. A later
document adds what was not known, or not pinned, before; another value only comes with another generation of logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from distcommit.core.errors import ConfigurationError, storage_error
from distcommit.core.records.fixed_settings import Pin, PinnedSettings
from distcommit.protocol.paths.store import SETTINGS, number_of, numbered_name
from distcommit.protocol.paths.temporary import is_temporary
from distcommit.stores.state.documents import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

SETTINGS_VERSION = 1
_NOT_SET = Pin("not set")
_TODO = (
    "restore the file from a backup; or make sure that the job file has the settings that the store was filled with"
    " (`distcommit report` shows those of the newest run), then `distcommit store rebuild` records them again"
)


class RecordedSettings(msgspec.Struct, frozen=True):
    """What a store has recorded. `settings`: as the job file says them; `found`: what its source turned out to be;
    `noted`: all values of settings that did not bind."""

    version: int
    settings: dict[str, str]
    found: dict[str, str] = {}
    noted: dict[str, tuple[str, ...]] | msgspec.UnsetType = msgspec.UNSET


def read_settings(store: JobStore) -> RecordedSettings:
    """What is recorded; nothing, for a store that no run of this version has used.

    Raises:
        UnknownVersionError, CorruptError: if the newest document can't be read.
    """
    return _newest(store)[1]


def require_settings(store: JobStore, pinned: PinnedSettings, found: Mapping[str, Pin] | None = None) -> None:
    """Compares with what is recorded; what is not recorded yet may be anything.

    Raises:
        ConfigurationError: naming each setting that is another one than was recorded, and what to do.
        UnknownVersionError, CorruptError: as `read_settings`.
    """
    _require(store, read_settings(store), pinned, found or {})


def record_settings(store: JobStore, pinned: PinnedSettings, found: Mapping[str, Pin] | None = None) -> None:
    """Records what is not recorded yet, durably, before anything is stored that depends on it. Safe to call again, and
    by several at once.

    Raises:
        DistcommitError: if they can't be recorded; as `require_settings` too, since somebody else may have been first.
    """
    fs, folder, found = store.fs, _folder(store), found or {}
    while True:
        number, recorded = _newest(store)
        _require(store, recorded, pinned, found)
        wanted = _recorded_with(recorded, pinned, found)
        if wanted == recorded:
            break
        _put(store, number + 1, wanted)
    if number:
        fs.sync([folder], store.roots.store)  # whoever put it may have died before that
    for entry in fs.list_folder(folder):
        if is_temporary(entry.name):
            fs.delete(f"{folder}/{entry.name}")


def record_settings_anew(store: JobStore, pinned: PinnedSettings) -> str:
    """Record settings, durably, above a document that can't be read. Return the path of that one.

    Raises:
        FileNotFoundError: if no document was ever recorded.
        DistcommitError: if they can't be recorded.
    """
    number = _newest_number(store)
    if not number:
        raise FileNotFoundError(_folder(store))
    _put(store, number + 1, _recorded_with(RecordedSettings(SETTINGS_VERSION, {}), pinned, {}))
    store.fs.sync([_folder(store)], store.roots.store)
    return f"{_folder(store)}/{numbered_name(number)}"


def change_settings(store: JobStore, settings: Mapping[str, str], still_ours: Callable[[], object]) -> None:
    """Records other values, durably, as a job moves to another generation. Safe to call again, and by several at once.

    Args:
        store: the job's.
        settings: the values by name.
        still_ours: asked after the newest document was looked at and before another one is put; raises where somebody
            else has taken the move over. Who has done so and ended it has put the number that this one would: so what
            a process that was paused puts late is never the newest.

    Raises:
        DistcommitError: if they can't be recorded; or as `still_ours` does.
    """
    while True:
        number, recorded = _newest(store)
        still_ours()
        wanted = msgspec.structs.replace(recorded, settings={**recorded.settings, **settings})
        if wanted == recorded:
            break
        _put(store, number + 1, wanted)
    if number:
        store.fs.sync([_folder(store)], store.roots.store)


def _put(store: JobStore, number: int, wanted: RecordedSettings) -> None:
    """Puts a document, unless somebody else has put that number, or swept what this one was about to put."""
    path = f"{_folder(store)}/{numbered_name(number)}"
    try:
        store.fs.make_folders(_folder(store))
        store.fs.put_if_absent(path, encode_document(wanted))
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(error, "the job's settings can't be recorded", path=path) from error


def _newest_number(store: JobStore) -> int:
    numbers = (number_of(entry.name) for entry in store.fs.list_folder(_folder(store)))
    return max((number for number in numbers if number is not None), default=0)


def _newest(store: JobStore) -> tuple[int, RecordedSettings]:
    number = _newest_number(store)
    if not number:
        return 0, RecordedSettings(SETTINGS_VERSION, {})
    path = f"{_folder(store)}/{numbered_name(number)}"
    data = store.fs.read(path)
    return number, decode_document(data, RecordedSettings, SETTINGS_VERSION, "the record of settings", path, todo=_TODO)


def _require(store: JobStore, recorded: RecordedSettings, pinned: PinnedSettings, found: Mapping[str, Pin]) -> None:
    values = {**recorded.settings, **recorded.found}
    if recorded.settings:  # else no run has recorded any, and it may be anything
        values = {**{name: pin.unrecorded for name, pin in pinned.settings.items() if pin.unrecorded}, **values}
    now = {name: pinned.settings.get(name, _NOT_SET) for name in values if name not in recorded.found}
    now |= {name: found[name] for name in recorded.found if name in found}
    for name, before in (recorded.noted or {}).items():
        if name not in values and name in pinned.settings and pinned.settings[name].binds:
            now[name] = pinned.settings[name]
            values[name] = now[name].value if set(before) <= {now[name].value} else ", ".join(before)
    changed = [name for name, pin in now.items() if pin.value != values[name]]
    if not changed:
        return
    otherwise = " ".join(dict.fromkeys(now[name].otherwise for name in changed if now[name].otherwise))
    raise ConfigurationError(
        "a setting is another one than this store was filled with: what is stored would mean something else",
        store=store.roots.store,
        setting=", ".join(changed),
        expected=", ".join(f"{name}: {values[name]}" for name in changed),
        found=", ".join(f"{name}: {now[name].value}" for name in changed),
        todo=otherwise or f"put it back, or carry what is stored over to new folders: `{pinned.carried_by}`",
    )


def _recorded_with(recorded: RecordedSettings, pinned: PinnedSettings, found: Mapping[str, Pin]) -> RecordedSettings:
    """What is recorded, and the settings of now."""
    binding = {name: pin.value for name, pin in pinned.settings.items() if pin.binds and pin.value != pin.unrecorded}
    return RecordedSettings(
        SETTINGS_VERSION,
        {**recorded.settings, **binding},
        {**recorded.found, **{name: pin.value for name, pin in found.items()}},
        _noted_with(recorded, pinned) or msgspec.UNSET,
    )


def _noted_with(recorded: RecordedSettings, pinned: PinnedSettings) -> dict[str, tuple[str, ...]]:
    """What is noted, and the values of now of what does not bind, and has not bound before."""
    noted = dict(recorded.noted or {})
    for name, pin in pinned.settings.items():
        if not pin.binds and name not in recorded.settings and pin.value not in noted.get(name, ()):
            noted[name] = (*noted.get(name, ()), pin.value)
    return noted


def _folder(store: JobStore) -> str:
    return f"{store.roots.store}/{SETTINGS}"
