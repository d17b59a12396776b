"""The sink that prints records as a preview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.interfaces.committer import SealRequest
from distcommit.core.interfaces.sink import (
    Abilities,
    AttemptIdentity,
    Origin,
    SinkSettings,
    SinkWriter,
    StagingArea,
)
from distcommit.core.support.settings_model import SettingsModel
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.sinks.files.sink import FileSink

_FILES = FileSink()


class ConsoleSink(SettingsModel, SinkSettings):
    """Preview on the console: records are published to files in temporary folders, which are deleted once some records
    are printed.

    Attributes:
        rows: number of records to print of each dataset and branch.
    """

    type: Literal["console"]
    rows: int = Field(default=10, ge=1, le=1000)

    abilities: ClassVar[Abilities] = Abilities(at_least_once=True, audit=True, atomic=False)

    @property
    def name(self) -> str:
        return self.type

    @property
    def preview_records(self) -> int:
        return self.rows

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        return "the console"

    def check_schema(self, schema: pa.Schema) -> None:
        _FILES.check_schema(schema)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return _FILES.open_writer(attempt, area, origin)

    def commit_steps(self, request: SealRequest, context: StepContext) -> Sequence[CommitStep]:
        return _FILES.commit_steps(request, context)
