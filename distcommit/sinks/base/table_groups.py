"""Commit groups of sinks whose records go to tables: the datasets that share one."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from distcommit.core.interfaces.sink import BY_DATASET
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.base.table_names import DATASET


class GroupsByTable(CommitterSink):
    """What goes to one table is committed at once: where all datasets share one, they are a commit group."""

    if TYPE_CHECKING:
        table: str

    @abstractmethod
    def shown(self, table: str) -> str:
        """A table, or the template of its name, as people write it."""

    @abstractmethod
    def group_of(self, dataset_urn: str) -> str:
        """The commit group of all that go to the table of this dataset."""

    @property
    def shares_tables(self) -> bool:
        """Whether all datasets go to one table."""
        return DATASET not in self.table

    @property
    def grouped_by(self) -> str:
        return f"table {self.shown(self.table)}" if self.shares_tables else BY_DATASET

    def commit_group(self, dataset_urn: str) -> str:
        return self.group_of(dataset_urn) if self.shares_tables else dataset_urn
