"""Settings of the source `rest`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import ClassVar, Literal
from urllib.parse import quote, urlsplit

import pyarrow as pa
from pydantic import ConfigDict, Field, SecretStr, field_validator

from distcommit.core.errors import ConfigurationError, SourceError
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.source import DatasetProblem, SourceState, stored_incarnations
from distcommit.core.interfaces.source_table import Extract, TableType
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.install_command import install_command
from distcommit.core.support.setting_checks import repeated, urn_errors
from distcommit.core.support.settings_model import SettingError, SettingsModel, checks, raise_all, rule
from distcommit.core.watermark import Position
from distcommit.core.work_units import DatasetPlan
from distcommit.fs.secret_files import check_secret_files, with_secret_files
from distcommit.sources.described_source import DescribedSource
from distcommit.sources.rest.extractor import (
    OFFSET_COLUMN,
    PARTITION_COLUMN,
    RECORD_SCHEMA,
    RestExtractor,
)
from distcommit.sources.rest.pages import RecordList
from distcommit.sources.rest.paging import Paging, Request
from distcommit.sources.rest.plan_dataset import is_count, plan_dataset
from distcommit.sources.rest.watermark_field import ROWS, WatermarkField
from distcommit.sources.watermark_column import PARTITION, Kind

_DATASET = "{dataset}"
_SHORT_TIMEOUT_S = 5.0


class ListOverrides(SettingsModel):
    """Settings of one dataset that differ from the source's.

    Attributes:
        records: dotted path of the list of records, instead of the source's.
        watermark: the watermark field, instead of the source's.
        params: parameters of requests, in addition to the source's.
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)

    records: str | None = None
    watermark: WatermarkField | None = None
    params: dict[str, str] = Field(default_factory=dict)


class RestSource(DescribedSource):
    """Lists of JSON records that a server returns by HTTP GET, page by page, in the order of a field.

    Each record is the bytes of its JSON, with its number in the dataset.

    Attributes:
        type: `rest`.
        url: `https://host/path` or `http://...`, where `{dataset}` is replaced by a dataset's name. It has no password.
        datasets: the names of the datasets.
        params: parameters of each request. `{dataset}` is replaced as in `url`.
        records: dotted path of the list of records in an answer; empty if the answer is the list.
        watermark: the watermark field.
        paging: how to find the next page.
        headers: headers of each request. `${file:PATH}` is replaced by that file's content, read by each process that
            connects.
        username: user for basic authentication; empty for none.
        password: the user's password. `${file:PATH}` is replaced as in `headers`.
        timeout_s: seconds to wait for a connection, and for each byte.
        response_timeout_s: seconds that a whole response may take. A response has at most 256 MiB.
        retries: number of retries if the server can't be reached, is busy (429) or fails (5xx). The delay is half a
            second, then twice as long each time, less a random part of up to a half; or `Retry-After`, up to a minute.
        overrides: settings of single datasets, by name.
    """

    model_config = ConfigDict(hide_input_in_errors=True, coerce_numbers_to_str=True)

    provenance: ClassVar[Provenance | None] = Provenance(PARTITION_COLUMN, OFFSET_COLUMN, counts_reading=True)

    type: Literal["rest"]
    url: str
    datasets: tuple[str, ...] = Field(min_length=1)
    params: dict[str, str] = Field(default_factory=dict)
    records: str = ""
    watermark: WatermarkField
    paging: Paging
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    username: str = ""
    password: SecretStr = SecretStr("")
    timeout_s: float = Field(default=30, gt=0)
    response_timeout_s: float = Field(default=300, gt=0)
    retries: int = Field(default=4, ge=0, le=20)
    overrides: dict[str, ListOverrides] = Field(default_factory=dict)

    @checks("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or _DATASET in parts.netloc:
            raise SettingError("must begin with https://HOST/ or http://HOST/")
        if parts.username is not None or parts.query or parts.fragment:
            raise SettingError(
                "must not contain a user or a query (?)", remedy="set source.username and source.params instead"
            )
        if parts.port == 0:
            raise SettingError("must have a valid port")
        return url

    @field_validator("datasets")
    @classmethod
    def _are_names(cls, datasets: tuple[str, ...]) -> tuple[str, ...]:
        invalid = (error for index, name in enumerate(datasets) for error in urn_errors(name, index))
        raise_all([*repeated(datasets), *invalid])
        return datasets

    _check_files = field_validator("headers", "password")(check_secret_files)

    @rule
    def _datasets_are_requested(self) -> Iterator[SettingError]:
        texts = (
            self.url,
            *self.params.values(),
            *(text for o in self.overrides.values() for text in o.params.values()),
        )
        if len(self.datasets) > 1 and not any(_DATASET in text for text in texts):
            yield SettingError("must contain {dataset}, or params must, if there are several datasets", "url")
        for name in self.overrides:
            if name not in self.datasets:
                yield SettingError("must be the name of a dataset of the source", "overrides", name)

    @property
    def batch_schema(self) -> pa.Schema:
        return RECORD_SCHEMA

    @property
    def supports_retry_ranges(self) -> bool:
        """True if a dataset has times, because other ranges have no planned end."""
        return any(self._watermark_of(urn).kind is Kind.TIME for urn in self.datasets)

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return the URL's path, because servers may be renamed, and the parameters with `{dataset}`. Incarnations
        contain the watermark field."""
        another = (
            "restore the old value, because positions count records of the old lists; or give the job new folders"
            " (paths)"
        )
        named = "&".join(f"{name}={text}" for name, text in sorted(self.params.items()) if _DATASET in text)
        by_params = {"params ({dataset})": FixedSetting(named, another)} if named else {}
        return {"url": FixedSetting(urlsplit(self.url).path, another), **by_params}

    def selects(self, dataset_urn: str, partition: str) -> bool:
        return dataset_urn in self.datasets

    def extract_of(self, dataset_urn: str) -> Extract:
        """Return the extract: its keys are `_partition` and `_offset`, which the source adds to each record, and its
        delta field is the watermark field."""
        columns = (PARTITION_COLUMN, OFFSET_COLUMN)
        field = self._watermark_of(dataset_urn).field
        return self.described(Extract(self.type, dataset_urn, TableType.APPEND_ONLY, columns, (field,)))

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[DatasetPlan | DatasetProblem]:
        """Plan owned, idle datasets without a request. Ranges of times end by this machine's clock."""
        now = datetime.now(UTC)
        for urn in sorted(filter(owned, self.datasets)):
            state = states.get(urn)
            if state is not None and state.status is not DatasetStatus.IDLE:
                continue
            try:
                retried_end = states.to_read_again(urn)
                planned = plan_dataset(urn, self._watermark_of(urn), state, retried_end, now)
            except SourceError as error:
                yield DatasetProblem(urn, str(error))
                continue
            if planned is not None:
                yield planned

    def check_connection(self) -> str:
        """Request the first dataset's first page. If there are several datasets, return a rejection as text."""
        urn, timeout_s = self.datasets[0], min(self.timeout_s, _SHORT_TIMEOUT_S)
        impatient = self.model_copy(update={"timeout_s": timeout_s, "response_timeout_s": 2 * timeout_s, "retries": 0})
        extractor = impatient.open()
        try:
            extractor.client.get(impatient._list_of(urn).request, urn)
        except SourceError as error:
            if error.id != "SOURCE_REQUEST_REJECTED" or len(self.datasets) == 1:
                raise
            return f"the server responds; {urn}: {error.found}"
        finally:
            extractor.close()
        return f"{self.url.replace(_DATASET, urn)} responds"

    def incarnations(self, states: Mapping[str, DatasetState]) -> Mapping[str, str]:
        """Return the stored incarnations that have the watermark field of the job file.

        For other datasets, a position that an operator sets applies to the new field.
        """
        current = {urn: self._watermark_of(urn).incarnation for urn in states if urn in self.datasets}
        return {urn: stored for urn, stored in stored_incarnations(states, {}).items() if stored == current.get(urn)}

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        for urn, positions in datasets.items():
            if urn not in self.datasets:
                yield f"{urn!r} is not a dataset of this job (see source.datasets)"
                continue
            field = self._watermark_of(urn)
            if PARTITION not in positions:
                yield f"{urn!r}: there is no position of {PARTITION!r}, a value of {field.field}"
            for partition, position in positions.items():
                if partition == PARTITION and not field.is_position(position):
                    shape = "a list of one integer" if field.type == "integer" else f"of type {field.type}"
                    yield f"{urn!r}: {position!r} is not a value of {field.field}, which must be {shape}"
                elif partition == ROWS and not is_count(position):
                    yield f"{urn!r}: {position!r}, for partition {ROWS!r}, is not a number of records"
                elif partition not in (PARTITION, ROWS):
                    yield f"{urn!r}: {partition!r} is not one of its partitions, {PARTITION!r} and {ROWS!r}"

    def open(self) -> RestExtractor:
        """Return an extractor that connects at its first work unit.

        Raises:
            ConfigurationError: if `requests` is not installed, or a secret file is unreadable.
        """
        try:
            from distcommit.sources.rest.client import RestClient  # noqa: PLC0415 - an extra of its own
        except ImportError as error:
            raise ConfigurationError(
                "the REST source needs requests",
                id="PACKAGE_MISSING",
                found=str(error),
                todo=f"run `{install_command('rest')}` on the driver and on all executors",
            ) from error
        headers = {name: with_secret_files(value.get_secret_value()) for name, value in self.headers.items()}
        password = with_secret_files(self.password.get_secret_value())
        basic = (self.username, password) if self.username else None
        secrets = [text for text in (*headers.values(), password) if text]
        client = RestClient(headers, basic, self.timeout_s, self.response_timeout_s, self.retries, secrets)
        return RestExtractor(client, {urn: self._list_of(urn) for urn in self.datasets})

    def _watermark_of(self, urn: str) -> WatermarkField:
        override = self.overrides.get(urn)
        return (override and override.watermark) or self.watermark

    def _list_of(self, urn: str) -> RecordList:
        override = self.overrides.get(urn, ListOverrides())
        params = {name: text.replace(_DATASET, urn) for name, text in {**self.params, **override.params}.items()}
        request = Request(url=self.url.replace(_DATASET, quote(urn, safe="")), params=params)
        records = self.records if override.records is None else override.records
        return RecordList(request, records, self._watermark_of(urn), self.paging)
