"""The result of a rebuild of a store."""

from __future__ import annotations

import msgspec

from distcommit.core.watermark import Position


class RebuildRow(msgspec.Struct, frozen=True):
    """A dataset whose state the rebuild changes.

    Attributes:
        dataset: dataset URN.
        positions_before: stored positions by partition; empty without a stored watermark.
        positions_after: rebuilt positions by partition; empty if no record is proven to be published.
        files: number of files that the rebuilt state counts.
        files_set_aside: number of files whose records the next run reads again.
        records_in_gaps: offsets between the dataset's files that no file covers.
        incarnation: incarnation of the new positions, such as a Kafka topic id; empty if unknown.
        earlier: incarnations before the dataset's source was recreated.
    """

    dataset: str
    positions_before: dict[str, Position]
    positions_after: dict[str, Position]
    files: int
    files_set_aside: int
    records_in_gaps: int
    incarnation: str = ""
    earlier: list[str] = []


class RebuildResult(msgspec.Struct):
    """The changes of a rebuild, done or planned. `set_aside`, `gaps` and `problems` have at most 100 entries.

    Attributes:
        epoch: epoch of the rebuild, above all others in the folders; 0 if only damaged files were repaired.
        written: whether the changes were written; false for a plan, or with problems.
        datasets: number of datasets in `rows`.
        rows: changed datasets.
        set_aside: paths of files that are moved out of the output.
        set_aside_count: number of all files that are moved out of the output.
        gaps: missing offsets of datasets. Unless gaps are accepted, `problems` has them too.
        problems: reasons why no watermark was changed.
        problems_count: number of all problems.
        repaired: damaged files that were written again, including a job log whose unreadable part was set aside.
    """

    epoch: int = 0
    written: bool = False
    datasets: int = 0
    rows: list[RebuildRow] = []
    set_aside: list[str] = []
    set_aside_count: int = 0
    gaps: list[str] = []
    problems: list[str] = []
    problems_count: int = 0
    repaired: list[str] = []
