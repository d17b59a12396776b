"""Warnings about columns whose type in the job file does not fit the published files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.secrets import without_secrets
from distcommit.app.job_file.sections.flow_settings import FlowSettings
from distcommit.core.errors import DistcommitError, error_text
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import Reasons
from distcommit.core.support.counts import count_of
from distcommit.core.work_units import COLUMN_NOTE
from distcommit.pipeline.task_flow import FlowColumns
from distcommit.protocol.paths.output import is_published_name, published_epoch, published_folder
from distcommit.schemas.evolution import is_joinable
from distcommit.schemas.known_columns import UNKNOWN
from distcommit.sinks.files.footer import read_footer, read_written_schema
from distcommit.stores.folders.folder_trees import files_below
from distcommit.stores.history.run_records import read_beginning, read_record, recorded_epochs
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

_MOST_SECONDS = 1.0
"""Seconds after which no further dataset is compared."""
_WITHOUT_NEW_RECORDS = ("recover", "expire", "compact")
"""Commands whose runs write no records with the settings of the job file."""
_RETURNED = (RunOutcome.SUCCEEDED, RunOutcome.INCOMPLETE, RunOutcome.HELD_BACK)
"""Outcomes of runs whose notes were printed."""


class TypeComparison(NamedTuple):
    """The result of a comparison with published files.

    Attributes:
        compared: number of compared datasets, as text.
        warnings: a warning for each column that would get a type that readers can't join with its published type.
    """

    compared: str
    warnings: list[str]


def compare_published_types(folders: JobFolders, store: JobStore) -> TypeComparison:
    """Compare the columns that the job file determines with the newest Parquet file of each dataset and branch. Stops
    after a second; at least one dataset is compared.
    """
    flow = folders.config.task_flow()
    reached = FlowColumns.of(flow.source).after(flow.stages)
    changed: dict[str, list[str]] = {}
    deadline_s, count, is_complete = monotonic() + _MOST_SECONDS, 0, True
    for urn in (urn for bucket in range(store.buckets) for urn in sorted(store.bucket_log(bucket).refresh().datasets)):
        if count and monotonic() >= deadline_s:
            is_complete = False
            break
        count += 1
        for branch in flow.branches:
            fields = [field for field in reached.after(branch.stages).columns.fields if field.type != UNKNOWN]
            if not fields or not branch.sink.abilities.files:
                continue
            published = _types(store.fs, f"{store.roots.output}/{published_folder(urn, branch.name)}")
            for field in fields:
                before = published.get(field.name, field.type)
                if not is_joinable(before, field.type):
                    text = f"column {field.name} is {before} in published files, and {field.type} in the job file"
                    changed.setdefault(text, []).append(urn)
    datasets = count_of(count, "dataset")
    compared = f"{datasets} compared" if is_complete else f"only the first {datasets} compared"
    command = folders.fixed_settings().restarted_by
    remedy = f"in new folders: `{command}`" if command else "in new folders (paths)"
    warnings = [
        f"{text} (dataset {', '.join(named[:3])}{f' and {len(named) - 3:,} more' if len(named) > 3 else ''};"
        f" {compared}): readers can't join both. Restore the published type, or publish all records again {remedy}"
        for text, named in changed.items()
    ]
    return TypeComparison(compared, warnings)


def changed_type_notes(folders: JobFolders, store: JobStore, command: str) -> Reasons:
    """Return the warnings of `compare_published_types` as notes for a run of `command`.

    Compares nothing if the command writes no records, no run is recorded, or the newest run that wrote records had the
    same flow settings. A failure is only logged.
    """
    if command.startswith(_WITHOUT_NEW_RECORDS):
        return Reasons()
    try:
        epochs = recorded_epochs(store.fs, store.roots.store)
        if not epochs or _recorded_flow(store, epochs) == _flow_settings(without_secrets(folders.tree)):
            return Reasons()
        warnings = compare_published_types(folders, store).warnings
    except Exception as error:  # noqa: BLE001 - of any construct; the run itself does not need the comparison
        logger.warning("the types of published columns were not compared: %s", error_text(error))
        return Reasons()
    return Reasons.first_of(Reasons.of("job file", COLUMN_NOTE, text) for text in warnings)


def _recorded_flow(store: JobStore, epochs: Sequence[int]) -> Mapping[str, Any] | None:
    """Return the recorded flow settings of the newest run that read records and returned a result."""
    fs, root = store.fs, store.roots.store
    for epoch in reversed(epochs):
        record = read_record(fs, root, epoch)
        if record is None or record.outcome not in _RETURNED or record.command.startswith(_WITHOUT_NEW_RECORDS):
            continue
        beginning = read_beginning(fs, root, epoch)
        return _flow_settings(beginning.facts.config) if beginning is not None else None
    return None


def _flow_settings(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: tree.get(name) for name in FlowSettings.model_fields}


def _newest_file(fs: FileSystem, folder: str) -> str:
    """Return the file with the newest columns. A merged file is as old as the newest file that was merged into it."""
    named = {path: path.rpartition("/")[2] for path in files_below(fs, folder)}
    epochs = {path: published_epoch(name) for path, name in named.items() if is_published_name(name)}
    newest, newest_age = "", 0
    for path in sorted(epochs, key=epochs.__getitem__, reverse=True):
        if epochs[path] <= newest_age:
            break
        footer = read_footer(fs, path)
        age = max(footer.replaces) if footer is not None and footer.publish == "compact" else epochs[path]
        if age > newest_age:
            newest, newest_age = path, age
    return newest


def _types(fs: FileSystem, folder: str) -> dict[str, object]:
    """Return the types of the columns in the newest file of a folder; empty if it is not a readable Parquet file."""
    try:
        path = _newest_file(fs, folder)
        return {field.name: field.type for field in read_written_schema(fs, path)} if path else {}
    except (DistcommitError, OSError):  # of another format; or damaged, which the audit reports
        return {}
