"""The rule of every ledger: a commit is a compare-and-set from an epoch that the store knows.

A request names its bases: the epochs that the target may have before the commit. A row with any other epoch shows that
the target or the store was restored from a copy or recreated. Comparing only `epoch > stored` would publish records
twice if a bucket's log has lost its tail.

Before a dataset's first commit its base is "no row", which an empty, recreated ledger also has. So a ledger that can be
removed while its data stays has an identity: a text that is assigned when the ledger is created. Writers record it in
their commit infos, after creating a missing ledger. Committers compare it while they lock the ledger's row. If it is
equal, the ledger has had a row of every commit since those rows were written. A ledger that was created later has
another identity, and is not used instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from xxhash import xxh3_128_hexdigest

from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.committer import AlreadyCommitted, CommitOutcome, CommitRequest, FailedForGood
from distcommit.core.interfaces.ledger import Covered, LedgerRow
from distcommit.sinks.base.offset_coverage import added, without


def commit_id(request: CommitRequest) -> str:
    """Return the identity of a request's commit: a hash of its attempts; empty if these are unknown.

    Epochs alone do not identify it: a store that was restored from a copy assigns the same numbers again.
    """
    return xxh3_128_hexdigest("\n".join(request.attempts).encode()) if request.attempts else ""


def _is_another(row: LedgerRow, request: CommitRequest) -> bool:
    """Return whether row and request have the same epoch and different commits."""
    ids = row.commit_id, commit_id(request)
    return row.epoch == request.epoch and all(ids) and ids[0] != ids[1]


def answered(row: LedgerRow | None, request: CommitRequest) -> CommitOutcome | None:
    """Return the outcome of a request at a target with that row; None if it is to be committed.

    Then the row must become `committed` in the same transaction as the data.

    A row above the request is a refusal too: a sealed sequence is based on everything that was committed before. A
    zombie that repeats an old commit may get any outcome, as its records are not valid any more.
    """
    epoch, revoked = (row.epoch, row.revoked) if row is not None else (0, 0)
    if row is not None and (epoch > request.epoch or _is_another(row, request)):
        return _another_store(request, f"epoch {epoch}, which this store has not committed")
    if epoch == request.epoch:
        return AlreadyCommitted()
    if request.epoch <= revoked:
        return FailedForGood(f"epoch {request.epoch} was taken back from this target")
    if not request.bases or epoch in request.bases:
        return None
    return _another_store(request, f"epoch {epoch}" if epoch else "no row")


def _another_store(request: CommitRequest, actual: str) -> FailedForGood:
    expected = " or ".join(f"epoch {base}" if base else "nothing" for base in request.bases) or "an older epoch"
    return FailedForGood(
        f"this is not the target that the store knows: its ledger has {actual} for the dataset, expected {expected}."
        " Target or store were restored from a copy, or recreated. Nothing was written. To do: restore the other one to"
        " the same state, and release the dataset with retry; if that is impossible, delete the dataset's data and"
        " ledger row from this target, and release the dataset with restart, which reads it from its beginning"
    )


def of_another_ledger(request: CommitRequest, identity: str) -> str:
    """Return the ledger that a request's rows were written for, if it is not the one of that identity; else empty."""
    recorded = (str(info["ledger"]) for info in request.infos)
    return next((ledger for ledger in recorded if ledger and ledger != identity), "")


def committed(row: LedgerRow | None, request: CommitRequest, covered: Sequence[Covered]) -> LedgerRow:
    """Return the row after the request is committed."""
    row = row or LedgerRow(dataset_urn=request.dataset_urn, branch=request.branch)
    return replace(
        row, epoch=request.epoch, base=row.epoch, commit_id=commit_id(request), covered=added(*row.covered, *covered)
    )


def allowed_again(row: LedgerRow | None, request: CommitRequest) -> LedgerRow | None:
    """Return the row after a request that was taken back may be committed again, as another target could not take it
    back. The dataset's older epochs can still not be committed."""
    if row is None or row.revoked != request.epoch:
        return row
    return replace(row, revoked=request.epoch - 1)


def taken_back(row: LedgerRow | None, request: CommitRequest, covered: Sequence[Covered]) -> LedgerRow:
    """Return the row after the request is taken back, whether it was committed or not.

    If it was (`row.epoch == request.epoch`), its data must be removed in the same transaction.

    Raises:
        ConflictError: if a later epoch is committed, or another commit of that epoch.
    """
    row = row or LedgerRow(dataset_urn=request.dataset_urn, branch=request.branch)
    if row.epoch > request.epoch or _is_another(row, request):
        raise ConflictError(
            "another epoch of the dataset is committed",
            id="TARGET_EPOCH_DIFFERS",
            dataset=request.dataset_urn,
            epoch=request.epoch,
            found=f"epoch {row.epoch}",
            todo="if the target has all records of this epoch, release the dataset with accept; else delete the"
            " dataset's data and ledger row from the target, and release the dataset with restart",
        )
    revoked = max(row.revoked, request.epoch)
    if row.epoch < request.epoch:
        return replace(row, revoked=revoked)
    return replace(row, revoked=revoked, epoch=row.base, base=0, commit_id="", covered=without(row.covered, covered))
