"""Fixed settings of a store: recorded by its runs, and required to stay the same once state depends on them.

<store>/settings/<number>.json     the document with the highest number counts

A document is put if absent and never changed, so that of two processes with different settings one fails. A later
document adds settings that were unknown or not fixed before. While nothing is committed, a run may replace the settings
(`tests/spec/settings_model.py` is the model). Afterwards a changed value needs another generation of logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import ConfigurationError
from distcommit.core.records.fixed_settings import FixedSetting, FixedSettings
from distcommit.protocol.paths.store import SETTINGS, number_of, numbered_name
from distcommit.protocol.paths.temporary_and_probes import is_temporary
from distcommit.stores.state.checksummed_json import decode_document, encode_document
from distcommit.stores.state.find_state_bound_to_settings import find_bound_state
from distcommit.stores.state.job_store import JobStore

SETTINGS_VERSION = 1


class RecordMark(StrEnum):
    """The processes that may replace the recorded settings."""

    ANNOUNCED = "announced"
    """A run may replace the settings; one that depends on them must put a newer document before it stores state."""
    FINAL = "final"
    """An operator command depends on the settings, so no run may replace them."""


_NOT_SET = FixedSetting("not set")
_NOTHING_COMMITTED = "nothing that depends on the setting"
_TODO = (
    "restore the file from a backup; or make sure that the job file has the settings that the store was filled with"
    " (`distcommit report` shows those of the newest run), then `distcommit store rebuild` records them again"
)


class RecordedSettings(msgspec.Struct, frozen=True):
    """The settings that a store has recorded.

    Attributes:
        version: format version.
        settings: fixed settings, as in the job file.
        source_facts: facts that the source has reported about itself.
        unfixed_values: all values so far of settings that were not fixed.
        mark: which processes may replace the settings; unset if no process has announced or excluded a replacement.
    """

    version: int
    settings: dict[str, str]
    source_facts: dict[str, str] = {}
    unfixed_values: dict[str, tuple[str, ...]] | msgspec.UnsetType = msgspec.UNSET
    mark: RecordMark | msgspec.UnsetType = msgspec.UNSET


def read_settings(store: JobStore) -> RecordedSettings:
    """Return the recorded settings; empty if none are recorded. Raise UnknownVersionError or CorruptError."""
    return _newest_record(store)[1]


def require_settings(
    store: JobStore, fixed_settings: FixedSettings, settings: Mapping[str, FixedSetting] | None = None
) -> None:
    """Check that the job's fixed settings equal the recorded ones. A setting without a recorded value may have any
    value. While nothing is committed, every setting may have any value.

    Raises:
        ConfigurationError: if settings differ; the text names each of them, the state that depends on them and the
            remedy.
        UnknownVersionError, CorruptError: if the newest document cannot be read.
    """
    recorded = read_settings(store)
    changes = _changes(recorded, fixed_settings, settings or {})
    if changes and (evidence := _find_evidence(store, recorded, changes)):
        raise _refusal(store, changes, evidence, fixed_settings)


def record_settings(
    store: JobStore,
    fixed_settings: FixedSettings,
    settings: Mapping[str, FixedSetting] | None = None,
    *,
    epoch: int = 0,
) -> None:
    """Record settings that are not recorded yet, durably. Call it before state that depends on them is stored.

    Idempotent, also concurrently.

    Args:
        settings: facts that the source has reported about itself.
        epoch: epoch of the run, which has fenced the bucket logs. The run replaces recorded settings if nothing is
            committed. 0 for an operator command, which replaces none and records its settings as final.

    Raises:
        ConfigurationError: if settings differ from the recorded ones and must not replace them.
        DistcommitError: if they cannot be recorded.
        FencedError: if a newer run than `epoch` has begun.
    """
    fs, folder, settings = store.fs, _folder(store), settings or {}
    while True:
        number, recorded = _newest_record(store)
        changes = _changes(recorded, fixed_settings, settings)
        if not changes:
            is_final = not epoch or recorded.mark is RecordMark.FINAL
            mark = RecordMark.FINAL if is_final else msgspec.UNSET
            updated = msgspec.structs.replace(_recorded_with(recorded, fixed_settings, settings), mark=mark)
        elif evidence := _find_evidence(store, recorded, changes, epoch) or ("" if epoch else _NOTHING_COMMITTED):
            raise _refusal(store, changes, evidence, fixed_settings)
        elif recorded.mark is RecordMark.ANNOUNCED:
            updated = _recorded_with(RecordedSettings(SETTINGS_VERSION, {}), fixed_settings, settings)
        else:
            updated = msgspec.structs.replace(recorded, mark=RecordMark.ANNOUNCED)
        if updated == recorded:
            break
        _put(store, number + 1, updated)
    if number:
        fs.sync([folder], store.roots.store)  # the process that put it may have died before its sync
    for entry in fs.list_folder(folder):
        if is_temporary(entry.name):
            fs.delete(f"{folder}/{entry.name}")


def replace_unreadable_settings(store: JobStore, fixed_settings: FixedSettings) -> str:
    """Record settings, durably, in a document after the unreadable newest one, and return the path of the latter.

    Raises:
        FileNotFoundError: if there is no document.
        DistcommitError: if they cannot be recorded.
    """
    number = _newest_number(store)
    if not number:
        raise FileNotFoundError(_folder(store))
    empty = RecordedSettings(SETTINGS_VERSION, {})
    recorded = msgspec.structs.replace(_recorded_with(empty, fixed_settings, {}), mark=RecordMark.FINAL)
    _put(store, number + 1, recorded)
    store.fs.sync([_folder(store)], store.roots.store)
    return f"{_folder(store)}/{numbered_name(number)}"


def change_settings(store: JobStore, settings: Mapping[str, str], require_ownership: Callable[[], object]) -> None:
    """Record other values, durably, for a move to another generation. Idempotent, also concurrently.

    Args:
        settings: new values by name.
        require_ownership: called between reading the newest document and putting the next one. It raises if another
            process has taken over the move. That process has put the same number, so a late put has no effect.

    Raises:
        DistcommitError: if they cannot be recorded; also the errors of `require_ownership`.
    """
    while True:
        number, recorded = _newest_record(store)
        require_ownership()
        mark = RecordMark.FINAL if recorded.mark is RecordMark.FINAL else msgspec.UNSET
        updated = msgspec.structs.replace(recorded, settings={**recorded.settings, **settings}, mark=mark)
        if updated == recorded:
            break
        _put(store, number + 1, updated)
    if number:
        store.fs.sync([_folder(store)], store.roots.store)


def _put(store: JobStore, number: int, updated: RecordedSettings) -> None:
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


def _changes(
    recorded: RecordedSettings, fixed_settings: FixedSettings, settings: Mapping[str, FixedSetting]
) -> dict[str, tuple[str, FixedSetting]]:
    values = {**recorded.settings, **recorded.source_facts}
    if recorded.settings:  # else no run has recorded any, and any value is allowed
        values = {**{name: pin.unrecorded for name, pin in fixed_settings.settings.items() if pin.unrecorded}, **values}
    now = {name: fixed_settings.settings.get(name, _NOT_SET) for name in values if name not in recorded.source_facts}
    now |= {name: settings[name] for name in recorded.source_facts if name in settings}
    for name, noted_values in (recorded.unfixed_values or {}).items():
        if name not in values and name in fixed_settings.settings and fixed_settings.settings[name].binds:
            now[name] = fixed_settings.settings[name]
            values[name] = now[name].value if set(noted_values) <= {now[name].value} else ", ".join(noted_values)
    return {name: (values[name], pin) for name, pin in now.items() if pin.value != values[name]}


def _find_evidence(
    store: JobStore, recorded: RecordedSettings, changes: Mapping[str, tuple[str, FixedSetting]], epoch: int = 0
) -> str:
    """Describe committed state that depends on the settings; empty if there is none.

    Read `recorded` before the call.
    """
    if recorded.mark is RecordMark.FINAL:
        return "watermarks or states that an operator command has put, or was about to put"
    return find_bound_state(
        store,
        epoch,
        at_target=any("sink" in name.split(".") for name in changes),
        regroups=any(name.endswith(".commit_group") for name in changes),
    )


def _refusal(
    store: JobStore, changes: Mapping[str, tuple[str, FixedSetting]], evidence: str, fixed_settings: FixedSettings
) -> ConfigurationError:
    remedies = [pin.otherwise.rstrip(".") for _, pin in changes.values() if pin.otherwise]
    otherwise = ". ".join(dict.fromkeys(remedies))
    if evidence is _NOTHING_COMMITTED:
        otherwise = "run the job, whose run records the changed settings, then repeat this command: `distcommit run`"
    elif fixed_settings.restarted_by and any(fixed_settings.carried_by not in remedy for remedy in remedies):
        otherwise += f". To begin in new folders, run `{fixed_settings.restarted_by}`"
    return ConfigurationError(
        "a setting differs from the one that this store was filled with; it would change the meaning of stored data",
        id="SETTING_FIXED",
        store=store.roots.store,
        setting=", ".join(changes),
        stored=evidence,
        expected=", ".join(f"{name}: {value}" for name, (value, _) in changes.items()),
        found=", ".join(f"{name}: {pin.value}" for name, (_, pin) in changes.items()),
        todo=otherwise or f"restore the old value, or continue in new folders by `{fixed_settings.carried_by}`",
    )


def _recorded_with(
    recorded: RecordedSettings, fixed_settings: FixedSettings, settings: Mapping[str, FixedSetting]
) -> RecordedSettings:
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
    noted = dict(recorded.unfixed_values or {})
    for name, pin in fixed_settings.settings.items():
        if not pin.binds and name not in recorded.settings and pin.value not in noted.get(name, ()):
            noted[name] = (*noted.get(name, ()), pin.value)
    return noted


def _folder(store: JobStore) -> str:
    return f"{store.roots.store}/{SETTINGS}"
