"""Former names of settings: each is an error that names the new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distcommit.app.job_file.problems.section_models import value_at
from distcommit.app.job_file.problems.invalid_settings import Invalid
from distcommit.core.support.settings_model import Key

RENAMED: Mapping[str, str] = {
    "observing": "telemetry",
    "readers.kept_cuts": "readers.kept_snapshots",
    "source.settle_s": "source.min_file_age_s",
    "source.remembered": "source.tracked_files",
    "source.late": "source.on_late_file",
    "source.changed": "source.on_changed_file",
    "source.answer_s": "source.response_timeout_s",
    "fork.otherwise": "fork.unmatched",
}
"""New names by old ones, as dotted keys from the top of the job file. Only the last key differs."""
REPLACED: Mapping[str, str] = {
    "value": "converters: [{type: json, fields: ...}]",
    "on_undecodable": "on_rejected",
}
"""Settings of the top level that others have replaced."""


def with_new_names(tree: Mapping[str, Any]) -> tuple[dict[str, Any], list[Invalid]]:
    """Return the content of a job file with new names in place of old ones, and a problem for each old one."""
    problems: list[Invalid] = []
    new = dict(tree)
    for old, name in {**RENAMED, **REPLACED}.items():
        *above, key = old.split(".")
        section = value_at(new, tuple(above))
        if not isinstance(section, Mapping) or key not in section:
            continue
        problems.append(Invalid((*above, key), f"was {'renamed to' if old in RENAMED else 'replaced by'} {name}"))
        value, remainder = section[key], {other: value for other, value in section.items() if other != key}
        renamed = {name.split(".")[-1]: value, **remainder} if old in RENAMED else remainder
        new = {**new, above[0]: renamed} if above else renamed
    return new, problems


def old_keys(keys: Key) -> Key:
    """Return the keys with the former name of the setting, or of the section that contains it; unchanged if it was not
    renamed.
    """
    for old, name in RENAMED.items():
        new = tuple(name.split("."))
        if keys[: len(new)] == new:
            return (*old.split("."), *keys[len(new) :])
    return keys
