"""Whether published records are those that were written: file by file, and those of a sequence as it was sealed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from distcommit.core.records.log_records import DatasetState
from distcommit.core.work import added_content
from distcommit.sinks.files.content import as_text, content_sum
from distcommit.sinks.files.footer import Footer


def altered(footer: Footer, records: pa.Table) -> str:
    """How the records that were read from a file differ from those that were written to it; empty if they do not, or
    if the file is older than such sums."""
    if not footer.content_sum:
        return ""
    found = as_text(content_sum(records))
    if found == footer.content_sum:
        return ""
    return (
        f"its records are not those that were written: expected content sum {footer.content_sum}, as its footer says,"
        f" found {found}; restore the file from a backup, or read its offsets from the source again"
    )


@dataclass(slots=True)
class SequenceContent:
    """The files of the sequence that a dataset's state says was done last, as their footers have them. `is_whole`: all
    that it published has to be there: nothing has retired any of it since. `is_counted`: all that it published is in
    files."""

    state: DatasetState
    is_whole: bool = False
    is_counted: bool = False
    records: int = 0
    sums: list[str] = field(default_factory=list)

    def add(self, footer: Footer) -> None:
        """Counts a file of this dataset, if it is of that sequence."""
        if footer.epoch == self.state.done_epoch:
            self.records += footer.records
            self.sums.append(footer.content_sum)

    def altered(self) -> str:
        """How they differ from what was sealed; empty if they do not.

        Also empty where that says nothing: one of them is older than such sums, a person has accepted the sequence as
        it is, or there are more of them than were sealed, which shows as duplicates. That there are none is a gap where
        branches commit at targets, whose ledgers tell it.
        """
        state, found = self.state, added_content(self.sums)
        if state.done_epoch in state.accepted_epochs:
            return ""
        if self.is_whole and (self.sums or self.is_counted) and len(self.sums) < state.done_files:
            # several output records of one input record may be in several files, each of which names its offset
            return (
                f"of the {state.done_files} files of epoch {state.done_epoch}, as the commit log counts them, only"
                f" {len(self.sums)} are there; restore the others from a backup, or read their offsets from the source"
                " again"
            )
        counts = (len(self.sums), self.records)
        if not (found and state.done_content_sum) or counts != (state.done_files, state.done_records):
            return ""
        if found == state.done_content_sum:
            return ""
        return (
            f"the {len(self.sums)} files of epoch {state.done_epoch} are not those that were sealed: expected content"
            f" sum {state.done_content_sum}, as the commit log says, found {found} by their footers; restore them from"
            " a backup, or read their offsets from the source again"
        )
