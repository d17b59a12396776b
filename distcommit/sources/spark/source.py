"""Settings of the source `spark`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field, SecretStr, field_validator

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import Extractor, Planned, SourceState
from distcommit.core.interfaces.source_table import Extract, TableType
from distcommit.core.interfaces.target_identity import Target
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.setting_checks import urn_errors
from distcommit.core.support.settings_model import SettingError, raise_all, rule
from distcommit.core.watermark import Position
from distcommit.fs.secret_files import check_secret_files, with_secret_files
from distcommit.sources.described_source import DescribedSource
from distcommit.sources.plan_snapshot import is_count
from distcommit.sources.spark.own_target_check import selects
from distcommit.sources.spark.transform import FrameTransform, Option
from distcommit.sources.watermark_column import PARTITION, Kind, is_position

_FETCH_OPTIONS = frozenset(
    {
        *("user", "password", "driver", "fetchsize", "batchsize", "querytimeout"),
        *("numpartitions", "partitioncolumn", "lowerbound", "upperbound"),
        *("pushdownpredicate", "pushdownaggregate", "pushdownlimit", "pushdownoffset", "pushdowntablesample"),
        *("keytab", "principal", "refreshkrb5config", "connectionprovider"),
    }
)
"""Options of `jdbc`, in lower case, that do not select rows."""
_FILE_SYSTEM = "fs."
"""Prefix of Hadoop's options, such as credentials, which do not select rows."""
_JDBC_HOST = re.compile(r"^(jdbc:.*?//)[^/?;]*(?=/[^/?;])")


class SparkSource(DescribedSource):
    """Datasets read by a reader of Spark, such as `jdbc`, `parquet`, `orc`, or one from a jar.

    A Spark task cannot call a reader of Spark. Before a run plans, the driver's Spark session reads each dataset into
    the staging folder, and the run reads it from there.

    Attributes:
        type: `spark`.
        format: the reader's name, as in `spark.read.format`. Configure its jars in `spark.conf`.
        options: reader options for all datasets. If an option that may affect which rows there are changes, here or for
            a dataset, the dataset is not read until the option is restored or `distcommit dataset set-watermark` sets
            where it begins. Exceptions are the user, the host in a JDBC URL, and options that only affect how rows are
            fetched, such as `fetchsize` and `numPartitions`. A snapshot is always read.
        password: the reader option of that name, for `jdbc`. `${file:PATH}` in it, in an entry of `options` or in a
            `password` below `datasets` stands for the file's content.
        datasets: reader options by dataset name. They override `options`.
        watermark: the column whose values are positions: integers or timestamps that only grow. Empty: each run reads
            all of each dataset again, to be published with `sink.publish: replace`.
        lookback: how far the end of the range stays behind the column's greatest value: seconds for timestamps, a
            number for integers.
        transform: SQL or a function to apply to the rows of each dataset. If it changes, a dataset with a watermark is
            not read, as with `options`.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    staged_by: ClassVar[str] = "distcommit.spark.staged_frames:staged_frames"

    type: Literal["spark"]
    format: str = Field(min_length=1)
    options: dict[str, Option] = Field(default_factory=dict)
    password: SecretStr = SecretStr("")
    datasets: dict[str, dict[str, Option]] = Field(min_length=1)
    watermark: str = ""
    lookback: int | None = Field(default=None, ge=0, le=10**9)
    transform: FrameTransform | None = None

    @field_validator("datasets")
    @classmethod
    def _are_names(cls, datasets: dict[str, dict[str, Option]]) -> dict[str, dict[str, Option]]:
        raise_all(error for name in datasets for error in urn_errors(name, name))
        return datasets

    _check_files = field_validator("password", "options", "datasets")(check_secret_files)

    @rule
    def _has_lookback_with_watermark(self) -> Iterator[SettingError]:
        if self.watermark and self.lookback is None:
            yield SettingError(
                "must be set with watermark",
                "lookback",
                remedy="use 0 if rows appear in the order of values",
            )
        if not self.watermark and self.lookback is not None:
            yield SettingError("must not be set without watermark", "lookback")

    @rule
    def _publishes_ranges_of_single_rows(self) -> Iterator[SettingError]:
        if self.watermark and self.transform is not None and not self.transform.row_wise:
            yield SettingError(
                "must be true with source.watermark, because each run transforms only the new rows",
                *("transform", "row_wise"),
                actual="false",
                remedy="set it if each row of the result depends on one row alone. Otherwise, as with joins and"
                " aggregations, remove watermark and lookback, and set sink.publish to replace",
            )

    @property
    def reads_whole_units(self) -> bool:
        return True

    @property
    def supports_retry_ranges(self) -> bool:
        return not self.is_snapshot

    @property
    def is_snapshot(self) -> bool:
        return not self.watermark

    def selects(self, dataset_urn: str, partition: str) -> bool:
        return dataset_urn in self.datasets

    def reads(self, target: Target) -> bool:
        tables = self.transform.tables if self.transform is not None else {}
        read = [*self.datasets.values(), *tables.values()]
        return any(selects({**self.options, **own}, self.format, target) for own in read)

    @property
    def named_datasets(self) -> Sequence[str]:
        return tuple(self.datasets)

    def extract_of(self, dataset_urn: str) -> Extract:
        kind = TableType.APPEND_ONLY if self.watermark else TableType.SNAPSHOT_ONLY
        columns = (self.watermark,) if self.watermark else ()
        return self.described(Extract(self.format, dataset_urn, kind, (), columns))

    def reader_options(self, dataset: str) -> dict[str, str]:
        return self.options_with(self.datasets[dataset])

    def options_with(self, own: Mapping[str, Option]) -> dict[str, str]:
        """Return `options` overridden by `own`, including the password."""
        password = self.password.get_secret_value()
        options = {**self.options, **({"password": password} if password else {}), **own}
        return {name: with_secret_files(_written(value)) for name, value in options.items()}

    def without_password(self, text: str, dataset: str) -> str:
        password = self.reader_options(dataset).get("password")
        return text.replace(password, "***") if password else text

    def reader_of(self, dataset: str) -> str:
        """Return a digest, 12 hexadecimal digits, of reader, row-selecting options without host, and transform.

        Raises:
            SourceError: if the options of the transform's function have no digest.
        """
        both = {**self.options, **self.datasets[dataset]}
        options = {name.lower(): _written(value) for name, value in both.items()}
        names = [name for name in sorted(options) if name not in _FETCH_OPTIONS and not name.startswith(_FILE_SYSTEM)]
        relevant = {name: _JDBC_HOST.sub(r"\1", options[name]) for name in names}
        identity = [self.format.lower(), relevant, *([self.transform.identity] if self.transform is not None else [])]
        try:
            text = json.dumps(identity, sort_keys=True, default=str)
        except (TypeError, ValueError) as error:  # such as keys of several types, or a cycle
            raise SourceError(
                "the options of the function have no digest, by which a change of them is recognized",
                id="SOURCE_SETTINGS_INVALID",
                dataset=dataset,
                found=str(error),
                todo="use texts as keys in source.transform.options, and no cycles",
            ) from error
        return sha256(text.encode()).hexdigest()[:12]

    def check_code(self) -> None:
        if self.transform is not None and self.transform.function:
            self.transform.load()

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        raise _not_staged()

    def open(self) -> Extractor:
        raise _not_staged()

    def incarnations(self, states: Mapping[str, DatasetState]) -> Mapping[str, str]:
        """Return none, so that an operator's positions apply to the job file's column and reader."""
        return {}

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        """Yield the problems of positions that are neither snapshots nor values of the watermark column."""
        for urn, positions in datasets.items():
            if urn not in self.datasets:
                yield f"{urn!r} is not one of source.datasets"
            for partition, position in positions.items():
                if partition != PARTITION:
                    yield f"{urn!r}: partition {partition!r} must be {PARTITION!r}, the only one of a dataset"
                elif self.is_snapshot and not is_count(position):
                    yield f"{urn!r}: position {position!r} is not a number of snapshots"
                elif not (is_position(Kind.INTEGER, position) or is_position(Kind.TIME, position)):
                    yield f"{urn!r}: position {position!r} must be an integer or a time of the watermark column"


def _written(option: Option) -> str:
    return str(option).lower() if isinstance(option, bool) else str(option)


def _not_staged() -> SourceError:
    return SourceError(
        "the Spark source was called outside of a run, so no rows are staged for it",
        id="SPARK_ROWS_NOT_STAGED",
        expected="a call by a run, which asks Spark for the rows and stages them first",
        todo="read the source with `distcommit run`, or Job.run",
    )
