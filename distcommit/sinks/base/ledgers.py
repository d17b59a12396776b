"""The rule of every ledger: by compare-and-set from the epoch that the store knows.

A row below the request that is not one of its bases, or above it, belongs to a target that is not the one the store
knows: it was put back from a copy, made again, or the store was. `epoch > stored` alone would publish twice where a
bucket's log has lost its tail.

Before a dataset's first commit is known to be done its base is no row, which a ledger that was removed meanwhile has,
too. So where a ledger can be removed and what it proves stays, it has an identity: a text that it got as it was made.
Writers note it in their commit infos, as they end, and have the ledger made if there is none yet; committers compare it
where they hold the ledger's row. Whoever commits, the rows were written before: if that very ledger is still there, it
has had a row of each commit since. A ledger that is made later has another identity, and is never asked in its place.
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
    """Which commit a request asks for: the same for the same attempts, and no other ones. Epochs are numbers, which a
    store that was put back from a copy gives once more. Empty if the attempts are not known."""
    return xxh3_128_hexdigest("\n".join(request.attempts).encode()) if request.attempts else ""


def _is_another(row: LedgerRow, request: CommitRequest) -> bool:
    """Whether the row's epoch is that of the request, and its commit is not."""
    ids = row.commit_id, commit_id(request)
    return row.epoch == request.epoch and all(ids) and ids[0] != ids[1]


def answered(row: LedgerRow | None, request: CommitRequest) -> CommitOutcome | None:
    """What a target with that row answers a request; None: commit it, and have `committed` as the row in the same
    transaction.

    A row above the request is a refusal, too: what is sealed now stands on all that was committed before. (A zombie or
    a twin that asks for what is done long since may be told anything: what it says of it is not valid any more.)
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


def _another_store(request: CommitRequest, found: str) -> FailedForGood:
    expected = " or ".join(f"epoch {base}" if base else "nothing" for base in request.bases) or "an older epoch"
    return FailedForGood(
        f"this is not the target that the store knows: its ledger has {found} for the dataset, expected {expected}; the"
        " target or the store was put back from a copy, or made again. Nothing was written. To do: restore the other"
        " one, and release the dataset with retry; or, if it is gone for good, delete what this target has of the"
        " dataset, its ledger row too, and release the dataset with restart, which reads it from its beginning"
    )


def of_another_ledger(request: CommitRequest, identity: str) -> str:
    """Which ledger was there as the rows of a request were written, if it is another than the one of that identity;
    empty if it is the same, or none was noted."""
    noted = (str(info["ledger"]) for info in request.infos)
    return next((each for each in noted if each and each != identity), "")


def committed(row: LedgerRow | None, request: CommitRequest, covered: Sequence[Covered]) -> LedgerRow:
    """The row once the request is committed."""
    row = row or LedgerRow(dataset_urn=request.dataset_urn, branch=request.branch)
    return replace(
        row, epoch=request.epoch, base=row.epoch, commit_id=commit_id(request), covered=added(*row.covered, *covered)
    )


def allowed_again(row: LedgerRow | None, request: CommitRequest) -> LedgerRow | None:
    """The row once a request that was taken back may be committed after all, as another target refuses to take it back.
    Of the dataset's epochs all older ones stay as they are: none of them can be committed any more."""
    if row is None or row.revoked != request.epoch:
        return row
    return replace(row, revoked=request.epoch - 1)


def taken_back(row: LedgerRow | None, request: CommitRequest, covered: Sequence[Covered]) -> LedgerRow:
    """The row once the request is taken back, whether it was committed (then its data goes in the same transaction:
    `row.epoch == request.epoch`) or not.

    Raises:
        ConflictError: if a later epoch is committed, or another commit of that number.
    """
    row = row or LedgerRow(dataset_urn=request.dataset_urn, branch=request.branch)
    if row.epoch > request.epoch or _is_another(row, request):
        raise ConflictError(
            "another epoch of the dataset is committed",
            dataset=request.dataset_urn,
            epoch=request.epoch,
            found=f"epoch {row.epoch}",
            todo="if the target has all records of this epoch, release the dataset with accept; else delete what the"
            " target has of the dataset, its ledger row too, and release the dataset with restart",
        )
    revoked = max(row.revoked, request.epoch)
    if row.epoch < request.epoch:
        return replace(row, revoked=revoked)
    return replace(row, revoked=revoked, epoch=row.base, base=0, commit_id="", covered=without(row.covered, covered))
