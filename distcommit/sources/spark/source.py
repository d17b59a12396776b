"""Spark's readers as a source: which, with what options, and by which column what is new is known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from distcommit.core.errors import DistcommitError, SourceError
from distcommit.core.interfaces.extract import Extract, TableType
from distcommit.core.interfaces.source import Extractor, Planned, SourceSettings, SourceState
from distcommit.core.interfaces.targets import Target
from distcommit.core.records.log_records import DatasetState
from distcommit.core.urn import check_urn
from distcommit.core.watermark import Position
from distcommit.fs.secret_files import check_absolute, with_secret_files
from distcommit.sources.snapshots import is_count
from distcommit.sources.spark.places import selects
from distcommit.sources.watermark_column import PARTITION, Kind, is_position

_HOW_FETCHED = frozenset(
    {
        *("user", "password", "driver", "fetchsize", "batchsize", "querytimeout"),
        *("numpartitions", "partitioncolumn", "lowerbound", "upperbound"),
        *("pushdownpredicate", "pushdownaggregate", "pushdownlimit", "pushdownoffset", "pushdowntablesample"),
        *("keytab", "principal", "refreshkrb5config", "connectionprovider"),
    }
)
"""Options that do not say which rows there are, in small letters: Spark's own of `jdbc`."""
_FILE_SYSTEM = "fs."
"""Options of Hadoop's file systems begin so: where they are reached, and by whom."""
_JDBC_HOST = re.compile(r"^(jdbc:.*?//)[^/?;]*(?=/[^/?;])")
Option = bool | int | float | str


class SparkSource(BaseModel, SourceSettings):
    """Datasets that a reader of Spark's own reads, such as `jdbc`, `parquet`, `orc`, or one that a jar brings.

    A Spark task can't call a reader of Spark: before a run plans, the driver has Spark read each dataset into the
    staging folder, and the run reads it from there.

    Attributes:
        type: `spark`.
        format: the reader's name, as `spark.read.format` takes it. Its jars are a matter of `spark.conf`.
        options: of the reader, for all datasets. One that is changed, here or for a dataset, and may say which rows
            there are, keeps the dataset from being read until it is put back or `distcommit dataset set-watermark` says
            where it begins. Not so the user, the host in a JDBC URL, and what only says how rows are fetched, such as
            `fetchsize` and `numPartitions`; and a snapshot goes on.
        password: the reader's option of that name, for `jdbc`. `${file:PATH}` in it stands for what that file holds.
        datasets: by their names, the reader's options of each, which win over those of all.
        watermark: the column whose values are positions: integers or timestamps that only grow. Empty: each run reads
            all of each dataset anew, to be published by `sink.publish: replace`.
        lookback: how far the end of what is read stays behind the column's greatest value, in seconds for timestamps,
            and as a number for integers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    staged_by: ClassVar[str] = "distcommit.spark.frames:staged_frames"

    type: Literal["spark"]
    format: str = Field(min_length=1)
    options: dict[str, Option] = Field(default_factory=dict)
    password: SecretStr = SecretStr("")
    datasets: dict[str, dict[str, Option]] = Field(min_length=1)
    watermark: str = ""
    lookback: int | None = Field(default=None, ge=0, le=10**9)

    @field_validator("datasets")
    @classmethod
    def _are_names(cls, datasets: dict[str, dict[str, Option]]) -> dict[str, dict[str, Option]]:
        for name in datasets:
            try:
                check_urn(name)
            except DistcommitError as error:
                raise ValueError(f"{name!r} can't name a dataset: {error}") from None
        return datasets

    @field_validator("password")
    @classmethod
    def _is_absolute(cls, password: SecretStr) -> SecretStr:
        check_absolute(password.get_secret_value(), "password")
        return password

    @model_validator(mode="after")
    def _lookback_is_said(self) -> SparkSource:
        if self.watermark and self.lookback is None:
            raise ValueError("watermark goes with lookback: 0 only where rows appear in the order of their values")
        if not self.watermark and self.lookback is not None:
            raise ValueError("lookback goes with watermark; a snapshot has none")
        return self

    @property
    def reads_whole(self) -> bool:
        return True

    @property
    def reads_again(self) -> bool:
        return not self.is_snapshot

    @property
    def is_snapshot(self) -> bool:
        return not self.watermark

    def selects(self, dataset_urn: str, partition: str) -> bool:
        return dataset_urn in self.datasets

    def reads(self, target: Target) -> bool:
        return any(selects({**self.options, **own}, self.format, target) for own in self.datasets.values())

    @property
    def named_datasets(self) -> Sequence[str]:
        return tuple(self.datasets)

    def extract_of(self, dataset_urn: str) -> Extract:
        return extract_by(self.format, self.watermark, dataset_urn)

    def reader_options(self, dataset: str) -> dict[str, str]:
        """The options that a dataset is read with, the password among them, as Spark writes them."""
        password = with_secret_files(self.password.get_secret_value())
        options = {**self.options, **({"password": password} if password else {}), **self.datasets[dataset]}
        return {name: _written(value) for name, value in options.items()}

    def reader_of(self, dataset: str) -> str:
        """What tells the reader of a dataset, and those of its options that may say which rows there are, from others:
        twelve hexadecimal digits. Another host of the same database is no other one."""
        both = {**self.options, **self.datasets[dataset]}
        options = {name.lower(): _written(value) for name, value in both.items()}
        names = [name for name in sorted(options) if name not in _HOW_FETCHED and not name.startswith(_FILE_SYSTEM)]
        said = {name: _JDBC_HOST.sub(r"\1", options[name]) for name in names}
        return sha256(json.dumps([self.format.lower(), said]).encode()).hexdigest()[:12]

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        raise _not_staged()

    def open(self) -> Extractor:
        raise _not_staged()

    def incarnations(self, states: Mapping[str, DatasetState]) -> Mapping[str, str]:
        """Left to the next plan: the column and the reader are those of the job file then."""
        return {}

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        """Numbers of snapshots, or values of the column; which of its two kinds it has the next plan sees."""
        for urn, positions in datasets.items():
            if urn not in self.datasets:
                yield f"{urn!r} is not one of source.datasets"
            for partition, position in positions.items():
                if partition != PARTITION:
                    yield f"{urn!r}: {partition!r} is not a partition of a dataset, which has only {PARTITION!r}"
                elif self.is_snapshot and not is_count(position):
                    yield f"{urn!r}: {position!r} is no number of snapshots"
                elif not (is_position(Kind.INTEGER, position) or is_position(Kind.TIME, position)):
                    yield f"{urn!r}: {position!r} is not a value of a watermark column: an integer, or a time"


def _written(option: Option) -> str:
    return str(option).lower() if isinstance(option, bool) else str(option)


def extract_by(reader: str, watermark: str, urn: str) -> Extract:
    """What a dataset is an extract of: by its name, in what that reader reads."""
    kind = TableType.APPEND_ONLY if watermark else TableType.SNAPSHOT_ONLY
    return Extract(reader, urn, kind, (), (watermark,) if watermark else ())


def _not_staged() -> SourceError:
    return SourceError(
        "nothing of what Spark reads is staged",
        expected="a run that has begun",
        todo="read it by `distcommit run`, or Job.run",
    )
