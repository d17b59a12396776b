"""Base class of the settings of all sources: keys and delta fields that a job file declares."""

from __future__ import annotations

from msgspec.structs import replace
from pydantic import field_validator

from distcommit.core.interfaces.source import SourceSettings
from distcommit.core.interfaces.source_table import Extract
from distcommit.core.support.setting_checks import check_distinct
from distcommit.core.support.settings_model import SettingsModel


class DeclaredExtract(SettingsModel):
    """Keys and delta fields that the job file declares, which replace those of the source.

    Attributes:
        keys: columns that are unique together. Database sinks with `mode: upsert` or `mirror` use them if they have no
            `keys`.
        delta_fields: columns whose values identify new or newer rows. Writers and `distcommit status` receive them.
    """

    keys: tuple[str, ...] = ()
    delta_fields: tuple[str, ...] = ()

    _check_names = field_validator("keys", "delta_fields")(check_distinct)


class DescribedSource(SettingsModel, SourceSettings):
    """Base class of the section `source`.

    Attributes:
        extract: the declared keys and delta fields.
    """

    extract: DeclaredExtract = DeclaredExtract()

    def described(self, extract: Extract) -> Extract:
        return replace(
            extract,
            keys=self.extract.keys or extract.keys,
            delta_fields=self.extract.delta_fields or extract.delta_fields,
        )
