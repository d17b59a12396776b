"""Read failures: the log record, and the part of a dataset's state that results from it."""

from __future__ import annotations

from msgspec import Struct

from distcommit.core.records.previous_run import PreviousRun
from distcommit.core.watermark import Watermark


class DatasetReadFailure(Struct, frozen=True, array_like=True):
    """A dataset of which a run could not read everything that it had planned.

    Attributes:
        dataset_urn: the dataset.
        low: the dataset's watermark in that run.
        expected_high: the planned end of the unread partitions.
        reason: the error.
        stops: whether the dataset is stopped: no run plans it until an operator releases it.
        outage: whether an outage is to blame, so that the run does not count as failed.
        run: the results of the work units; None if the dataset was committed in part, because its sequence has the
            results.
    """

    dataset_urn: str
    low: Watermark | None
    expected_high: Watermark
    reason: str
    stops: bool = False
    outage: bool = False
    run: PreviousRun | None = None


class ReadFailures(Struct, frozen=True, array_like=True, tag="ReadFailures"):
    """The datasets that a run could not read completely. Their watermarks stay, or move less far than planned.

    Attributes:
        epoch: the run.
        datasets: the datasets, each once.
    """

    epoch: int
    datasets: tuple[DatasetReadFailure, ...]


class ReadFailure(Struct, frozen=True, array_like=True):
    """Read failures of a dataset since its watermark last moved as planned.

    Attributes:
        epoch: the newest run that failed.
        failed_runs: the number of failed runs in a row, without outages.
        expected_high: the planned end of the partitions that the newest run did not read.
        reason: the error of the newest run.
        stopped: whether no run plans the dataset until an operator releases it.
        outage: whether an outage is to blame for the newest failure.
    """

    epoch: int
    failed_runs: int
    expected_high: Watermark
    reason: str
    stopped: bool = False
    outage: bool = False
