"""The ledgers of a job's targets: the commits that each target has recorded, by dataset and branch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import ConfigurationError, ConflictError, TransientError
from distcommit.core.interfaces.commit_step import require_success
from distcommit.core.interfaces.committer import CommitRequest, CommitterContext, OpensCommitter
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.sealed_sequences import SealedSequence, TargetEpochs
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.steps.sink_step import open_committer
from distcommit.stores.state.job_store import JobStore


@dataclass(frozen=True, slots=True)
class BranchLedger:
    """The ledger row of a dataset and branch, with its target.

    Attributes:
        row: ledger row.
        sink: sink whose target has the ledger.
        context: context to open the committers of `sink`.
    """

    row: LedgerRow
    sink: OpensCommitter
    context: CommitterContext

    def miscounted(self) -> str:
        """Return how the number of rows that readers of the target see differs from the ledger; empty if it does not,
        or if the target can't count rows. Raises the target's errors.
        """
        with open_committer(self.sink, self.context) as committer:
            result = committer.visible_rows(self.row.dataset_urn, self.row.branch)
        expected = sum(part.rows for part in self.row.covered)
        if result is None or result == expected:
            return ""
        return f"the ledger has {expected} rows, but readers see {result}"


@dataclass(slots=True)
class Ledgers:
    """The ledger rows of a store at all targets, by dataset and branch. Usable within `open_ledgers`.

    Attributes:
        unreadable: error of each ledger that could not be read.
        branches: branches of the flow that commit at a target.
    """

    unreadable: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    _rows: dict[str, dict[str, BranchLedger]] = field(default_factory=dict)

    def add(self, ledger: BranchLedger) -> None:
        self._rows.setdefault(folder_of(ledger.row.dataset_urn), {})[ledger.row.branch] = ledger

    def folders(self) -> list[str]:
        """Return the output folder names of datasets with ledger rows."""
        return sorted(self._rows)

    def of(self, folder: str) -> Sequence[BranchLedger]:
        """Return the rows of a dataset by its folder name, sorted by branch."""
        return [ledger for _, ledger in sorted(self._rows.get(folder, {}).items())]

    def bases(self, rows: Sequence[LedgerRow]) -> TargetEpochs:
        """Return the bases that a rebuilt store records for a dataset: by branch, the epoch in the target's ledger; 0
        without a row. The next commit is rejected if the ledger has another epoch by then.
        """
        epochs = {row.branch: row.epoch for row in rows}
        return {name: (epochs.get(name, 0),) for name in self.branches}


def require_audited(flow: TaskFlow) -> None:
    """Raise ConfigurationError unless all sinks report their commits."""
    silent = next((branch for branch in flow.branches if not branch.sink.abilities.audit), None)
    if silent is not None:
        raise ConfigurationError(
            "a sink of this job does not report its commits",
            id="OFFSETS_NOT_RECORDED",
            sink=silent.sink.name,
            branch=silent.name,
            expected="a committer with `ledger`, and `abilities` that declare it",
            todo="count each dataset's records at the sink's target, against the watermarks that `status` shows",
        )


@contextmanager
def open_ledgers(flow: TaskFlow, store: JobStore) -> Iterator[Ledgers]:
    """Read the ledgers of all branches, with rows of branches that the flow no longer has. A ledger that can't be read
    is listed in `Ledgers.unreadable`.

    One committer is open at a time: servers limit connections, and end sessions that are idle for long.
    """
    context = CommitterContext(store.fs, store.roots.staging, store.roots.output, store.store_id)
    names = {branch.name for branch in flow.branches}
    ledgers = Ledgers()
    for branch in flow.branches:
        for sink in branch.sink.committers.values():
            ledgers.branches.append(branch.name)
            try:
                with open_committer(sink, context) as committer:
                    for row in committer.ledger():
                        if row.branch == branch.name or row.branch not in names:
                            ledgers.add(BranchLedger(row, sink, context))
            except Exception as error:  # noqa: BLE001 - whatever a target raises
                ledgers.unreadable.append(f"ledger of branch {branch.name}, sink {sink.name}: {error}")
    yield ledgers


def fence_targets(flow: TaskFlow, store: JobStore, epoch: int) -> None:
    """Make the targets reject commits up to `epoch` of the datasets in the ledgers, so that a process that is still
    running cannot commit later.

    If a sink cannot withdraw commits, its target rejects a late commit whose expected epoch is not that of the
    dataset's ledger row. If the ledger has no row of the dataset, the late commit succeeds. The next commit of the
    rebuilt store is then rejected, because the store expects epoch 0 (`Ledgers.bases`).

    Raises TransientError if a ledger can't be read; then no target is fenced.
    """
    with open_ledgers(flow, store) as ledgers:
        if ledgers.unreadable:
            raise TransientError(
                "a target can't be fenced, because its ledger can't be read",
                found="; ".join(ledgers.unreadable),
                todo="make the target readable, then rebuild again; no watermark has changed",
            )
        branch_ledgers = [row for folder in ledgers.folders() for row in ledgers.of(folder)]
        groups: dict[tuple[int, str], list[BranchLedger]] = {}
        for ledger in branch_ledgers:
            groups.setdefault((id(ledger.sink), ledger.row.branch), []).append(ledger)
        for group in groups.values():
            requests = [CommitRequest(ledger.row.dataset_urn, epoch, (), ledger.row.branch) for ledger in group]
            with open_committer(group[0].sink, group[0].context) as committer:
                try:
                    require_success("commits of older epochs", "withdraw", committer.withdraw(requests))
                except ConflictError:  # then nothing was changed
                    for request in requests:
                        with suppress(ConflictError):
                            require_success(request.dataset_urn, "withdraw", committer.withdraw([request]))


def not_as_stored(row: LedgerRow, state: DatasetState | None) -> str:
    """Return how a ledger row differs from the stored dataset; empty if it does not."""
    if state is None:
        return f"epoch {row.epoch} of a dataset that the store does not know"
    pending = state.sequence.epoch if state.sequence else 0
    if row.epoch > state.done_epoch and row.epoch != pending:
        return (
            f"epoch {row.epoch}, which no sequence of this dataset published: expected at most {state.done_epoch}; the"
            " store is older than the target, or is a different store"
        )
    return ""


def not_done(sequence: SealedSequence) -> OffsetSets:
    """Return the offsets that a sequence publishes once it is done."""
    offsets = OffsetSets()
    low = sequence.low.positions if sequence.low else {}
    for partition, high in (sequence.high.positions if sequence.high else {}).items():
        first = low.get(partition, sequence.start.get(partition, 0))
        if isinstance(first, int) and isinstance(high, int):
            offsets.add_range(partition, first, high)
    return offsets
