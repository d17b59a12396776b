"""Fixed settings of a store: recorded by its first run, and required to be the same in all later runs.

<store>/settings/<number>.json     each contains the one before, and more; the newest counts

A document is put if absent and never changed, so that of two runs with different settings one fails. A later document
adds settings that were unknown or not fixed before. A changed value needs another generation of logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from distcommit.core.errors import ConfigurationError
from distcommit.core.records.fixed_settings import FixedSetting, FixedSettings
from distcommit.core.storage_errors import storage_error
from distcommit.protocol.paths.store import SETTINGS, number_of, numbered_name
from distcommit.protocol.paths.temporary_and_probes import is_temporary
from distcommit.stores.state.documents import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

SETTINGS_VERSION = 1
_NOT_SET = FixedSetting("not set")
_TODO = (
    "restore the file from a backup; or make sure that the job file has the settings that the store was filled with"
    " (`distcommit report` shows those of the newest run), then `distcommit store rebuild` records them again"
)


class RecordedSettings(msgspec.Struct, frozen=True):
    """The settings that a store has recorded.

    Attributes:
        version: format version.
        settings: fixed settings, as in the job file.
        source_facts: facts that the source has reported of itself.
        unfixed_values: all values so far of settings that were not fixed.
    """

    version: int
    settings: dict[str, str]
    source_facts: dict[str, str] = {}
    unfixed_values: dict[str, tuple[str, ...]] | msgspec.UnsetType = msgspec.UNSET


def read_settings(store: JobStore) -> RecordedSettings:
    """Return the recorded settings; empty for a store that no run of this version has used.

    Raises:
        UnknownVersionError, CorruptError: if the newest document cannot be read.
    """
    return _newest_record(store)[1]


def require_settings(
    store: JobStore, fixed_settings: FixedSettings, settings: Mapping[str, FixedSetting] | None = None
) -> None:
    """Compare with the recorded settings. A setting that is not recorded may have any value.

    Raises:
        ConfigurationError: if settings differ; names each of them and the remedy.
        UnknownVersionError, CorruptError: as `read_settings`.
    """
    _require(store, read_settings(store), fixed_settings, settings or {})


def record_settings(
    store: JobStore, fixed_settings: FixedSettings, settings: Mapping[str, FixedSetting] | None = None
) -> None:
    """Record settings that are not recorded yet, durably. Must precede everything stored that depends on them.
    Idempotent, also concurrently.

    Raises:
        DistcommitError: if they cannot be recorded; or as `require_settings`, as another run may have been first.
    """
    fs, folder, settings = store.fs, _folder(store), settings or {}
    while True:
        number, recorded = _newest_record(store)
        _require(store, recorded, fixed_settings, settings)
        updated = _recorded_with(recorded, fixed_settings, settings)
        if updated == recorded:
            break
        _put(store, number + 1, updated)
    if number:
        fs.sync([folder], store.roots.store)  # the process that put it may have died before its sync
    for entry in fs.list_folder(folder):
        if is_temporary(entry.name):
            fs.delete(f"{folder}/{entry.name}")


def replace_unreadable_settings(store: JobStore, fixed_settings: FixedSettings) -> str:
    """Record settings, durably, above a document that cannot be read. Return the path of the unreadable one.

    Raises:
        FileNotFoundError: if no document was ever recorded.
        DistcommitError: if they cannot be recorded.
    """
    number = _newest_number(store)
    if not number:
        raise FileNotFoundError(_folder(store))
    _put(store, number + 1, _recorded_with(RecordedSettings(SETTINGS_VERSION, {}), fixed_settings, {}))
    store.fs.sync([_folder(store)], store.roots.store)
    return f"{_folder(store)}/{numbered_name(number)}"


def change_settings(store: JobStore, settings: Mapping[str, str], require_ownership: Callable[[], object]) -> None:
    """Record other values, durably, for a move to another generation. Idempotent, also concurrently.

    Args:
        store: the job's store.
        settings: new values by name.
        require_ownership: called after the newest document was read and before another is put; raises if another
            process has taken over the move. A process that completed the move has put the number that this one would
            put, so that a late put of a paused process is never the newest.

    Raises:
        DistcommitError: if they cannot be recorded; or as `still_ours`.
    """
    while True:
        number, recorded = _newest_record(store)
        require_ownership()
        updated = msgspec.structs.replace(recorded, settings={**recorded.settings, **settings})
        if updated == recorded:
            break
        _put(store, number + 1, updated)
    if number:
        store.fs.sync([_folder(store)], store.roots.store)


def _put(store: JobStore, number: int, updated: RecordedSettings) -> None:
    """Put a document, unless another process has put that number or swept this one's temporary file."""
    path = f"{_folder(store)}/{numbered_name(number)}"
    try:
        store.fs.make_folders(_folder(store))
        store.fs.put_if_absent(path, encode_document(updated))
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(error, "the job's settings cannot be recorded", path=path) from error


def _newest_number(store: JobStore) -> int:
    numbers = (number_of(entry.name) for entry in store.fs.list_folder(_folder(store)))
    return max((number for number in numbers if number is not None), default=0)


def _newest_record(store: JobStore) -> tuple[int, RecordedSettings]:
    number = _newest_number(store)
    if not number:
        return 0, RecordedSettings(SETTINGS_VERSION, {})
    path = f"{_folder(store)}/{numbered_name(number)}"
    data = store.fs.read(path)
    return number, decode_document(
        data,
        RecordedSettings,
        SETTINGS_VERSION,
        "the record of settings",
        path,
        error_id="FIXED_SETTINGS_CORRUPT",
        todo=_TODO,
    )


def _require(
    store: JobStore, recorded: RecordedSettings, fixed_settings: FixedSettings, settings: Mapping[str, FixedSetting]
) -> None:
    values = {**recorded.settings, **recorded.source_facts}
    if recorded.settings:  # else no run has recorded any, and any value is allowed
        values = {**{name: pin.unrecorded for name, pin in fixed_settings.settings.items() if pin.unrecorded}, **values}
    now = {name: fixed_settings.settings.get(name, _NOT_SET) for name in values if name not in recorded.source_facts}
    now |= {name: settings[name] for name in recorded.source_facts if name in settings}
    for name, noted_values in (recorded.unfixed_values or {}).items():
        if name not in values and name in fixed_settings.settings and fixed_settings.settings[name].binds:
            now[name] = fixed_settings.settings[name]
            values[name] = now[name].value if set(noted_values) <= {now[name].value} else ", ".join(noted_values)
    changed = [name for name, pin in now.items() if pin.value != values[name]]
    if not changed:
        return
    otherwise = " ".join(dict.fromkeys(now[name].otherwise for name in changed if now[name].otherwise))
    raise ConfigurationError(
        "a setting differs from the one that this store was filled with; it would change the meaning of stored data",
        id="SETTING_FIXED",
        store=store.roots.store,
        setting=", ".join(changed),
        expected=", ".join(f"{name}: {values[name]}" for name in changed),
        found=", ".join(f"{name}: {now[name].value}" for name in changed),
        todo=otherwise or f"restore it, or transfer the stored state to new folders: `{fixed_settings.carried_by}`",
    )


def _recorded_with(
    recorded: RecordedSettings, fixed_settings: FixedSettings, settings: Mapping[str, FixedSetting]
) -> RecordedSettings:
    """Return the recorded settings together with the present ones."""
    binding = {
        name: pin.value for name, pin in fixed_settings.settings.items() if pin.binds and pin.value != pin.unrecorded
    }
    return RecordedSettings(
        SETTINGS_VERSION,
        {**recorded.settings, **binding},
        {**recorded.source_facts, **{name: pin.value for name, pin in settings.items()}},
        _noted_with(recorded, fixed_settings) or msgspec.UNSET,
    )


def _noted_with(recorded: RecordedSettings, fixed_settings: FixedSettings) -> dict[str, tuple[str, ...]]:
    """Return the noted values together with present values of settings that are not fixed and never were."""
    noted = dict(recorded.unfixed_values or {})
    for name, pin in fixed_settings.settings.items():
        if not pin.binds and name not in recorded.settings and pin.value not in noted.get(name, ()):
            noted[name] = (*noted.get(name, ()), pin.value)
    return noted


def _folder(store: JobStore) -> str:
    return f"{store.roots.store}/{SETTINGS}"
