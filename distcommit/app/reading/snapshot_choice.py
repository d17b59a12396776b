"""Chooses the snapshot for a reader: the newest one, or the one of a run or a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from distcommit.core.errors import ConfigurationError, NotSettledError, SnapshotExpiredError
from distcommit.core.records.job_log_records import CutPhase
from distcommit.protocol.log_state import Fold
from distcommit.stores.snapshots.expiry_requests import expiry_note
from distcommit.stores.snapshots.snapshot_manifests import SnapshotManifest, newest_snapshot_name, valid_manifests
from distcommit.stores.state.job_store import JobStore

AsOf = int | datetime | str | None
"""The choice of a snapshot. None: the newest. A number: the last one of the run with this epoch. A time: the newest one
of that time; a time without a zone is local. A text: an epoch, or a time in ISO 8601.

The snapshot of a time can be read only once a later snapshot exists. Until then, a newer one of that time may follow.
"""

_SINCE = datetime(1970, 1, 1, tzinfo=UTC)


def choose_snapshot(store: JobStore, as_of: AsOf) -> SnapshotManifest:
    """Return the manifest of the chosen snapshot.

    Raises:
        NotSettledError: if the snapshot does not exist yet.
        SnapshotExpiredError: if the snapshot has expired.
        ConfigurationError: if `as_of` is neither the epoch of a run nor a possible time.
        UnknownVersionError, CorruptError: if a manifest or the job log can't be read.
    """
    as_of = parsed_as_of(as_of)
    fold = store.job_log().refresh()
    roots = valid_manifests(store.fs, store.roots.store, fold)
    if as_of is None:
        manifest = next(roots, None)
        if manifest is None:
            raise _none_at_all(store, fold)
        return manifest
    return _at_time(store, roots, as_of) if isinstance(as_of, datetime) else _after_run(store, fold, roots, as_of)


def _none_at_all(store: JobStore, fold: Fold) -> NotSettledError:
    newest = newest_snapshot_name(fold)
    return NotSettledError(
        "there is no snapshot to read",
        store=store.roots.store,
        expected="a snapshot; each run writes two",
        found=f"epoch {newest[0]}, which left none"
        if newest
        else "a store in which no run has reached its first snapshot",
        todo=(
            "run the job, or `distcommit recover`; after a rebuild or a rebucket the next run makes the first snapshot"
        ),
    )


def _at_time(store: JobStore, roots: Iterator[SnapshotManifest], at: datetime) -> SnapshotManifest:
    """Return the newest snapshot of a time. The times of snapshots never decrease, so the choice is final once a later
    snapshot exists. Before that, a run whose clock is behind may still write a snapshot of that time.
    """
    time_ms = _ms(at)
    oldest: SnapshotManifest | None = None
    for root in roots:
        if root.time_ms <= time_ms:
            if oldest is None:
                raise _time_is_open(store, root, at)
            return root
        oldest = root
    if oldest is not None and oldest.parent is None:
        raise NotSettledError(
            "there was no snapshot yet at that time",
            store=store.roots.store,
            expected=f"a time from {_shown(oldest)} on",
            found=at.isoformat(),
            todo="ask for a later time",
        )
    expiry = expiry_note(store, lambda cutoff: time_ms <= cutoff.requested_ms)
    raise _expired(store, oldest, at.isoformat() + expiry)


def _ms(at: datetime) -> int:
    """Return whole milliseconds since 1970, without floats, so that the printed time of a snapshot chooses it."""
    try:
        return ((at if at.tzinfo is not None else at.astimezone(UTC)) - _SINCE) // timedelta(milliseconds=1)
    except (OverflowError, ValueError, OSError) as error:
        raise ConfigurationError(
            "there was no snapshot at that time",
            id="ARGUMENT_INVALID",
            expected="a time of a run",
            found=f"{at.isoformat()}: {error}",
        ) from error


def _time_is_open(store: JobStore, newest: SnapshotManifest, at: datetime) -> NotSettledError:
    is_for_ever = newest.phase is CutPhase.ENDED and newest.is_settled
    for_ever_note = f" (as_of={newest.epoch} always names this snapshot)" if is_for_ever else ""
    return NotSettledError(
        "no snapshot is later than this time, so a newer snapshot before this time may still be made",
        store=store.roots.store,
        expected=f"a time before the newest snapshot, which is {_shown(newest)}",
        found=at.isoformat(),
        todo=(
            f"leave as_of out for the newest snapshot{for_ever_note}; or read again once a run has made a snapshot "
            f"after this time"
        ),
    )


def _after_run(store: JobStore, fold: Fold, roots: Iterator[SnapshotManifest], epoch: int) -> SnapshotManifest:
    if not 0 < epoch <= fold.fence_epoch:
        raise ConfigurationError(
            "there is no run of that epoch",
            id="RUN_UNKNOWN",
            store=store.roots.store,
            expected=f"an epoch from 1 to {fold.fence_epoch}",
            found=str(epoch),
            todo="choose an epoch that `distcommit runs` lists",
        )
    later: SnapshotManifest | None = None
    oldest: SnapshotManifest | None = None
    for root in roots:
        if root.epoch <= epoch:
            if root.name == (epoch, CutPhase.ENDED) and root.is_settled:
                return root
            break
        oldest = root
        if (
            not root.repeats_parent
            and all(snapshot_bucket.epoch > epoch for snapshot_bucket in root.buckets.values())
            and _has_all(store, root)
        ):
            later = root
    else:
        if oldest is None or oldest.parent is None or oldest.parent[0] > epoch:
            expiry = expiry_note(store, lambda cutoff: epoch <= cutoff.after_epoch)
            raise _expired(store, oldest, f"epoch {epoch}{expiry}")
    if later is not None:
        return later
    raise NotSettledError(
        "this run is not settled yet",
        id="RUN_NOT_SETTLED",
        store=store.roots.store,
        epoch=epoch,
        expected="a run that has ended, with all its commits completed by itself or a later run",
        found=f"unfinished commits, or a bucket that could not be read; the newest run, epoch {fold.fence_epoch},"
        f" {'has ended' if fold.has_ended else 'is in progress or died'}",
        todo="wait for the run, or complete its commits with `distcommit recover JOB.yaml`; `distcommit status` lists"
        " quarantined datasets",
    )


def _has_all(store: JobStore, root: SnapshotManifest) -> bool:
    return root.generation != store.generation or len(root.buckets) == store.buckets


def _expired(store: JobStore, oldest: SnapshotManifest | None, actual: str) -> SnapshotExpiredError:
    return SnapshotExpiredError(
        "a snapshot is no longer kept",
        store=store.roots.store,
        expected=f"from {_shown(oldest)} on, the oldest kept one" if oldest else "one that is kept",
        found=actual,
        todo="read a later one; raise readers.kept_snapshots in the job file to keep more snapshots",
    )


def _shown(root: SnapshotManifest) -> str:
    at = datetime.fromtimestamp(root.time_ms / 1000, UTC)
    return f"epoch {root.epoch}, {at.isoformat(timespec='milliseconds')}"


def parsed_as_of(options: AsOf) -> int | datetime | None:
    """Return the epoch or the time that the value names; None for the newest snapshot.

    Raises:
        ConfigurationError: if the value names neither.
    """
    if options is None or isinstance(options, int | datetime):
        return options
    text = str(options)
    try:
        return int(text) if text.isdecimal() else datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            "as_of does not name a snapshot",
            id="ARGUMENT_INVALID",
            expected="the epoch of a run, such as 12, or a time, such as 2026-05-01T12:00:00+02:00",
            found=text,
            todo="correct as_of",
        ) from None
