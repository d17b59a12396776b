"""What a log keeps of datasets that runs could not read: the record, and what it leaves in a dataset's state."""

from __future__ import annotations

from msgspec import Struct

from distcommit.core.watermark import Watermark


class UnreadDataset(Struct, frozen=True, array_like=True):
    """A dataset of which a run could not read all that it had planned, and why.

    `low`: its watermark as the run saw it; `expected_high`: where what is not read was to end; `stops`: no run plans it
    any more until a person says so; `outage`: it is nobody's failed run.
    """

    dataset_urn: str
    low: Watermark | None
    expected_high: Watermark
    reason: str
    stops: bool = False
    outage: bool = False


class Unread(Struct, frozen=True, array_like=True, tag="Unread"):
    """A run could not read these datasets: their watermarks stay, or moved less far than planned."""

    epoch: int
    datasets: tuple[UnreadDataset, ...]


class FailedReading(Struct, frozen=True, array_like=True):
    """What runs have failed to read of a dataset since its watermark last moved as planned.

    `epoch`: the newest of these runs; `failed_runs`: how many in a row, without those that an `outage` is to blame for;
    `expected_high`: where what the newest has not read was to end; `stopped`: no run plans the dataset until a person
    says so.
    """

    epoch: int
    failed_runs: int
    expected_high: Watermark
    reason: str
    stopped: bool = False
    outage: bool = False
