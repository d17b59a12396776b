"""Compares the content sums of published records with those that were written, by file and by sequence."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from distcommit.core.records.log_records import DatasetState
from distcommit.core.work_units import sum_content
from distcommit.sinks.files.content_sum import as_text, content_sum
from distcommit.sinks.files.footer import Footer


def altered(footer: Footer, records: pa.Table) -> str:
    """Return how the records of a file differ from the written ones; empty if they do not, or without a content sum."""
    if not footer.content_sum:
        return ""
    actual = as_text(content_sum(records))
    if actual == footer.content_sum:
        return ""
    return (
        f"the records differ from the written ones: expected content sum {footer.content_sum} of the footer,"
        f" found {actual}; restore the file from a backup, or read its offsets from the source again"
    )


@dataclass(slots=True)
class SequenceContent:
    """The content of the files of a dataset's newest done sequence, according to their footers.

    Attributes:
        state: stored state of the dataset, with the counts and the sum of the sealed sequence.
        is_whole: whether no file of the sequence is superseded or already reported as missing.
        is_counted: whether all records of the sequence are in files, not at targets.
        records: number of records in the files.
        sums: content sum of each file; empty text for a file without one.
    """

    state: DatasetState
    is_whole: bool = False
    is_counted: bool = False
    records: int = 0
    sums: list[str] = field(default_factory=list)

    def add(self, footer: Footer) -> None:
        """Add a file of the dataset if the sequence published it."""
        if footer.epoch == self.state.done_epoch:
            self.records += footer.records
            self.sums.append(footer.content_sum)

    def altered(self) -> str:
        """Return how the files differ from the sealed sequence; empty if they do not.

        The result is also empty if no difference can be proven: a file has no content sum, an operator has accepted the
        sequence, or there are more files or other counts of records than were sealed.
        """
        state, actual = self.state, sum_content(self.sums)
        if state.done_epoch in state.accepted_epochs:
            return ""
        if self.is_whole and (self.sums or self.is_counted) and len(self.sums) < state.done_files:
            # several output records of one input record may be in several files, each of which names its offset
            return (
                f"files of epoch {state.done_epoch} are missing: the commit log has {state.done_files},"
                f" found {len(self.sums)}; restore the missing files from a backup, or read their offsets from the"
                " source again"
            )
        counts = (len(self.sums), self.records)
        if not (actual and state.done_content_sum) or counts != (state.done_files, state.done_records):
            return ""
        if actual == state.done_content_sum:
            return ""
        return (
            f"the {len(self.sums)} files of epoch {state.done_epoch} differ from the sealed ones: the commit log has"
            f" content sum {state.done_content_sum}, found {actual} in their footers; restore them from a backup, or"
            " read their offsets from the source again"
        )
