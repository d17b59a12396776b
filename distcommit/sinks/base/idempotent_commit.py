"""The commit rule of every ledger: a commit is a compare-and-set from one of the epochs that the store knows, the
request's `bases`.

A row with another epoch shows that the target or the store was restored from a copy, or recreated.

A recreated, empty ledger has no row, as before a first commit. So a ledger that can be removed without its data has an
identity. Writers record it in their commit infos, and committers refuse requests of another ledger.
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
    """Return a hash of a request's attempts; empty if it names none. Epochs are not unique, because a store that was
    restored from a copy assigns them again."""
    return xxh3_128_hexdigest("\n".join(request.attempts).encode()) if request.attempts else ""


def _is_another(row: LedgerRow, request: CommitRequest) -> bool:
    ids = row.commit_id, commit_id(request)
    return row.epoch == request.epoch and all(ids) and ids[0] != ids[1]


def answered(row: LedgerRow | None, request: CommitRequest) -> CommitOutcome | None:
    """Return the outcome of a request that must not be committed, given its ledger row. If the result is None, the
    caller commits the data and the row of `committed` in one transaction.

    A row with a higher epoch rejects the request, too. A run seals a sequence only after all earlier ones of the
    dataset are done. So another store has committed that row, or a zombie sends the request.
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
    """Return the identity of the ledger that the request was written for; empty if it is `identity` or unknown."""
    recorded = (str(info["ledger"]) for info in request.infos)
    return next((ledger for ledger in recorded if ledger and ledger != identity), "")


def committed(row: LedgerRow | None, request: CommitRequest, covered: Sequence[Covered]) -> LedgerRow:
    row = row or LedgerRow(dataset_urn=request.dataset_urn, branch=request.branch)
    return replace(
        row, epoch=request.epoch, base=row.epoch, commit_id=commit_id(request), covered=added(*row.covered, *covered)
    )


def allowed_again(row: LedgerRow | None, request: CommitRequest) -> LedgerRow | None:
    """Return the ledger row that permits a revoked request again; unchanged unless the request is the last revoked
    one."""
    if row is None or row.revoked != request.epoch:
        return row
    return replace(row, revoked=request.epoch - 1)


def taken_back(row: LedgerRow | None, request: CommitRequest, covered: Sequence[Covered]) -> LedgerRow:
    """Return the ledger row after the request is rolled back. If the request was committed (`row.epoch ==
    request.epoch`), the caller must delete its data in the same transaction. Raises ConflictError if a later epoch, or
    another commit of the same epoch, is committed."""
    row = row or LedgerRow(dataset_urn=request.dataset_urn, branch=request.branch)
    if row.epoch > request.epoch or _is_another(row, request):
        raise ConflictError(
            "another epoch of the dataset is committed",
            id="TARGET_EPOCH_DIFFERS",
            dataset=request.dataset_urn,
            epoch=request.epoch,
            found=f"epoch {row.epoch}",
            todo=f"if the target has all records of epoch {request.epoch}, release the dataset with accept; else delete"
            " all data and the ledger row of the dataset from the target, and release the dataset with restart",
        )
    revoked = max(row.revoked, request.epoch)
    if row.epoch < request.epoch:
        return replace(row, revoked=revoked)
    return replace(row, revoked=revoked, epoch=row.base, base=0, commit_id="", covered=without(row.covered, covered))
