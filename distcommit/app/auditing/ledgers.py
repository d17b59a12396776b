"""What the targets of a job's sinks say of what was committed to them: the ledger rows of all its branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from distcommit.core.errors import ConfigurationError, ConflictError
from distcommit.core.interfaces.committer import CommitRequest, CommitterContext, SinkCommitter
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.steps import require_success
from distcommit.core.records.log_records import DatasetState, SealedSequence, TargetEpochs
from distcommit.core.urn import folder_of
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.offsets import OffsetSets
from distcommit.steps.sink import open_committer
from distcommit.stores.state.job_store import JobStore


@dataclass(frozen=True, slots=True)
class BranchLedger:
    """A dataset and branch at a target: its row, and the committer that it came from."""

    row: LedgerRow
    committer: SinkCommitter

    def miscounted(self) -> str:
        """How the rows that readers of the target see differ from those that the ledger counts; empty if they do not,
        or if the target can't tell. Raises whatever the target does."""
        found = self.committer.visible_rows(self.row.dataset_urn, self.row.branch)
        expected = sum(part.rows for part in self.row.covered)
        if found is None or found == expected:
            return ""
        return f"expected {expected} rows, as its ledger says, found {found}"


@dataclass(slots=True)
class Ledgers:
    """All rows that the targets have for a store, by dataset and branch. `branches`: those of the flow that commit at a
    target; `unreadable`: ledgers that could not be read, and why. Usable as long as `open_ledgers` has not ended."""

    unreadable: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    _rows: dict[str, dict[str, BranchLedger]] = field(default_factory=dict)

    def add(self, found: BranchLedger) -> None:
        """Takes in a row."""
        self._rows.setdefault(folder_of(found.row.dataset_urn), {})[found.row.branch] = found

    def folders(self) -> list[str]:
        """Datasets that have rows, by the names of their folders in the output."""
        return sorted(self._rows)

    def of(self, folder: str) -> Sequence[BranchLedger]:
        """The rows of a dataset, in the order of its branches' names."""
        return [found for _, found in sorted(self._rows.get(folder, {}).items())]

    def bases(self, rows: Sequence[LedgerRow]) -> TargetEpochs:
        """What a store that goes by a dataset's rows knows of its targets, so that what it commits next is refused if
        anybody was there first. A branch without a row has 0."""
        known = {row.branch: row.epoch for row in rows}
        return {name: (known.get(name, 0),) for name in self.branches}


def require_audited(flow: TaskFlow) -> None:
    """Makes sure that all sinks tell what they have committed. Raises ConfigurationError."""
    silent = next((branch for branch in flow.branches if not branch.sink.abilities.audit), None)
    if silent is not None:
        raise ConfigurationError(
            "a sink of this job tells nothing of what it has committed",
            sink=silent.sink.name,
            branch=silent.name,
            expected="a committer with `ledger`, and `abilities` that say so",
            todo="count each dataset's records at the sink's target, against the watermarks that `status` shows",
        )


@contextmanager
def open_ledgers(flow: TaskFlow, store: JobStore) -> Iterator[Ledgers]:
    """Reads the ledgers of all branches, as they are at that moment. Branches that the flow has no more count where a
    target still names them."""
    context = CommitterContext(store.fs, store.roots.staging, store.roots.output, store.store_id)
    names = {branch.name for branch in flow.branches}
    ledgers = Ledgers()
    with ExitStack() as stack:
        for branch in flow.branches:
            for opens in branch.sink.committers.values():
                ledgers.branches.append(branch.name)
                try:
                    committer = stack.enter_context(open_committer(opens, context))
                    for row in committer.ledger():
                        if row.branch == branch.name or row.branch not in names:
                            ledgers.add(BranchLedger(row, committer))
                except Exception as error:  # noqa: BLE001 - whatever a target raises
                    ledgers.unreadable.append(f"ledger of branch {branch.name}, sink {opens.name}: {error}")
        yield ledgers


def fence_targets(flow: TaskFlow, store: JobStore, epoch: int) -> None:
    """Has targets that can take back commit nothing any more of that epoch and older ones, whoever still tries. (The
    others refuse it as not from the base that they have. Of datasets that they have no row of they refuse what comes
    after it instead: `Ledgers.bases`.)"""
    with open_ledgers(flow, store) as ledgers:
        found = [row for folder in ledgers.folders() for row in ledgers.of(folder)]
        for committer in {id(each.committer): each.committer for each in found}.values():
            rows = [each.row for each in found if each.committer is committer]
            requests = [CommitRequest(row.dataset_urn, epoch, (), row.branch) for row in rows]
            try:
                require_success("commits of older epochs", "abort", committer.abort(requests))
            except ConflictError:  # then nothing was changed
                for request in requests:
                    with suppress(ConflictError):
                        require_success(request.dataset_urn, "abort", committer.abort([request]))


def not_as_stored(row: LedgerRow, state: DatasetState | None) -> str:
    """How a row differs from what the store knows of the dataset; empty if it does not."""
    if state is None:
        return f"epoch {row.epoch} of a dataset that the store does not know"
    pending = state.sequence.epoch if state.sequence else 0
    if row.epoch > state.done_epoch and row.epoch != pending:
        return (
            f"epoch {row.epoch}, which no sequence of this dataset published: expected at most {state.done_epoch}; the"
            " store is older than the target, or another one"
        )
    return ""


def not_done(sequence: SealedSequence) -> OffsetSets:
    """The offsets that a sequence is of, which count once it is done."""
    found = OffsetSets()
    low = sequence.low.positions if sequence.low else {}
    for partition, high in (sequence.high.positions if sequence.high else {}).items():
        first = low.get(partition, sequence.start.get(partition, 0))
        if isinstance(first, int) and isinstance(high, int):
            found.add_range(partition, first, high)
    return found
