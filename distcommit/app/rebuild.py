"""A store made to know again what was published: its watermarks from the footers of the published files.

What the store knows is kept; what files of newer epochs say is added. Of a dataset, all epochs but the newest are
whole: nothing is sealed before what is pending is done. The newest is whole too if a run that left nothing open says so
in the output (`clean`), or if each of its partitions goes on, without a gap, where the store or the older files end.
Else the files of that epoch are set aside, and the next run reads their records again. What is so of epochs in which
error files were fed again is said in `app.replaced`. In which incarnation of a source
that was made again the watermark counts, and what is covered, is said in `app.continued`.

With at-least-once no epoch needs to be whole: of files since then only what continues without a gap is taken for
published, and the next run publishes the rest again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from distcommit.app.continued import Continued, EpochFiles
from distcommit.app.coverage import covered_by
from distcommit.app.published import PublishedFile, PublishedFolder, read_published
from distcommit.app.replaced import Replaced, replaced_in
from distcommit.model.errors import ConflictError, StaleStoreError
from distcommit.model.log_records import DatasetState, DatasetStatus
from distcommit.model.watermark import Position
from distcommit.protocol import next_record
from distcommit.protocol.fold import Fold
from distcommit.protocol.paths import epoch_name
from distcommit.sinks.files.offsets import offsets_of
from distcommit.stores.anchors import cut_ended, forget_heads, heads_now
from distcommit.stores.claims import Mark, put_mark, read_marks
from distcommit.stores.fencing import claim_folders, fence_bucket, require_fence
from distcommit.stores.generation import require_counting, require_not_moved
from distcommit.stores.job_store import JobStore
from distcommit.stores.staging import staged_buckets, staged_epochs, sweep_epoch

_LISTED = 100
SET_ASIDE = "set_aside"
"""Folder in the store that published files are moved to."""


class RebuildRow(msgspec.Struct, frozen=True):
    """One dataset whose state changes. `gap_records`: offsets between its files that no file has; `incarnation`: what
    its positions count in afterwards (a Kafka topic id), if that is known; `earlier`: what they counted in before its
    source was made again."""

    dataset: str
    before: dict[str, Position]
    after: dict[str, Position]
    files: int
    files_set_aside: int
    gap_records: int
    incarnation: str = ""
    earlier: list[str] = []


class RebuildResult(msgspec.Struct):
    """What a rebuild did, or would do. With `problems` nothing was written. Lists name the first hundred of a kind.

    `epoch`: the rebuild's; above all that are found in the folders.
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


@dataclass(slots=True)
class _Plan:
    """What a rebuild is going to do: states without their closing epoch, and files to set aside; `revoked` are those of
    sequences that somebody is abandoning."""

    states: list[DatasetState] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    newest_epoch: int = 0
    result: RebuildResult = field(default_factory=RebuildResult)


def plan_rebuild(store: JobStore, known: dict[str, DatasetState], *, accept_gaps: bool) -> RebuildResult:
    """What `rebuild_store` would do, from all footers. Writes nothing."""
    plan = _plan(store, known, accept_gaps=accept_gaps)
    plan.result.epoch = plan.newest_epoch + 1
    return plan.result


def _plan(store: JobStore, known: dict[str, DatasetState], *, accept_gaps: bool) -> _Plan:
    marks = read_marks(store.fs, store.roots.output)
    plan = _Plan(newest_epoch=max(0, *marks.values(), *staged_epochs(store.fs, store.roots.staging)))
    seen: set[str] = set()
    for folder in read_published(store.fs, store.roots.output):
        for problem in folder.unusable:
            _problem(plan.result, problem)
        urn = folder.dataset_urn
        if urn:
            seen.add(urn)
            state = known.get(urn) or DatasetState(urn)
            _dataset(plan, _without_revoked(plan, folder, state), state, marks, accept_gaps=accept_gaps)
    for urn, state in known.items():
        if urn not in seen and state.sequence is not None:
            _add(plan, state, Continued(state), 0, [])
    return plan


def _without_revoked(plan: _Plan, folder: PublishedFolder, state: DatasetState) -> PublishedFolder:
    """The folder without the files of a sequence that is being abandoned: whoever does it may go on to remove them."""
    if state.status is not DatasetStatus.REVOKING or state.sequence is None:
        return folder
    epoch = state.sequence.epoch
    revoked = [file.path for file in folder.files if file.footer.epoch == epoch]
    revoked += [path for path, stone in folder.tombstones.items() if stone.epoch == epoch]
    plan.revoked += revoked
    plan.result.set_aside_count += len(revoked)
    plan.result.set_aside += revoked[: max(0, _LISTED - len(plan.result.set_aside))]
    stones = {path: stone for path, stone in folder.tombstones.items() if path not in revoked}
    return replace(folder, files=[file for file in folder.files if file.path not in revoked], tombstones=stones)


def _dataset(
    plan: _Plan, folder: PublishedFolder, state: DatasetState, marks: dict[Mark, int], *, accept_gaps: bool
) -> None:
    result, urn = plan.result, state.dataset_urn
    for file in folder.files:
        plan.newest_epoch = max(plan.newest_epoch, file.footer.epoch)
        if file.footer.records and not file.footer.offsets:
            _problem(result, f"{file.path}: its footer names no offsets")
    replaced = replaced_in(folder, state.done_epoch, marks[Mark.CLEAN])
    plan.newest_epoch = max(plan.newest_epoch, replaced.newest_epoch)
    newer = _newer(result, replaced.appended, state)
    again = {epoch: files for epoch, files in replaced.whole.items() if epoch > state.done_epoch}
    has_taken = replaced.taken_epoch > state.done_epoch
    if not (newer or again or has_taken or replaced.aside) and state.sequence is None:
        return
    after, aside = Continued(state, replaced.mended()), list(replaced.aside)
    if has_taken:
        _take(after, replaced, newer)
    at_least_once = bool(newer) and newer[0].epoch <= marks[Mark.UNSEALED]
    if at_least_once:
        after.cover(newer)
    for files in newer if not at_least_once else ():
        _mend(after, again, files.epoch)
        is_newest = files is newer[-1] and files.epoch >= replaced.newest_epoch
        is_newest = is_newest and files.epoch > replaced.taken_epoch
        if is_newest and files.epoch > marks[Mark.CLEAN] and not after.joins(files):
            after.leave(files)
            aside += files.paths
        else:
            after.move(files)
    _mend(after, again, plan.newest_epoch)
    if has_taken:
        after.mend(after.incarnation, replaced.taken_epoch)  # of which no file need be there
    for gap in after.gaps:
        text = f"{urn} partition {gap.partition}: no file has offsets {gap.low} to {gap.high}"
        if not accept_gaps:
            _problem(result, text)
        if len(result.gaps) < _LISTED:
            result.gaps.append(text)
    there = sum(len(files.paths) for files in newer) + sum(map(len, again.values()))
    _add(plan, state, after, max(0, there - len(aside)), aside)


def _take(after: Continued, replaced: Replaced, newer: list[EpochFiles]) -> None:
    """Takes what was replaced as published, in the incarnation that the newest files count in: all of it is older."""
    taken = replaced.taken_by_incarnation()
    named = [files.incarnation for files in newer if files.incarnation]
    newest = named[-1] if named else after.incarnation or next(reversed(taken), "")
    if newest in taken:
        after.move(EpochFiles(after.done_epoch, newest, taken[newest]))


def _mend(after: Continued, again: dict[int, list[PublishedFile]], until: int) -> None:
    """Moves past the epochs up to that one in which records were fed again; takes them off."""
    for epoch in sorted(epoch for epoch in again if epoch <= until):
        for incarnation in {file.footer.incarnation for file in again.pop(epoch)} | {after.incarnation}:
            after.mend(incarnation, epoch)


def _newer(result: RebuildResult, files: list[PublishedFile], state: DatasetState) -> list[EpochFiles]:
    """Files of epochs that the store does not know to be done, by epoch. A sequence that it knows is among them if it
    has files, or needs none and another one came after it."""
    by_epoch: dict[int, list[PublishedFile]] = {}
    for file in files:
        if file.footer.epoch > state.done_epoch:
            by_epoch.setdefault(file.footer.epoch, []).append(file)
    sequence = state.sequence
    if sequence is not None and not sequence.steps and by_epoch and sequence.epoch < max(by_epoch):
        by_epoch.setdefault(sequence.epoch, [])
    found: list[EpochFiles] = []
    for epoch, group in sorted(by_epoch.items()):
        known = sequence if sequence is not None and sequence.epoch == epoch else None
        skipped = known.skipped if known is not None else ()
        incarnation = known.high.incarnation if known is not None and known.high is not None else ""
        covered = offsets_of(skipped)
        covered.update(covered_by((file.footer, file.offsets) for file in group))
        for file in group:
            covered.update(file.holes)
            named = file.footer.incarnation
            if named and incarnation not in ("", named):
                _problem(
                    result,
                    f"{file.path}: epoch {epoch} of this dataset counts in two incarnations, {incarnation}, {named}",
                )
            incarnation = named or incarnation
        found.append(EpochFiles(epoch, incarnation, covered, tuple(file.path for file in group), skipped))
    return found


def _add(plan: _Plan, state: DatasetState, after: Continued, files: int, aside: list[str]) -> None:
    plan.states.append(
        DatasetState(
            state.dataset_urn,
            watermark=after.watermark,
            done_epoch=after.done_epoch,
            origin=after.origin,
            skipped=after.skipped,
            accepted_epochs=state.accepted_epochs,
            schemas=state.schemas,
        )
    )
    plan.set_aside += aside
    gap_records = sum(g.high - g.low for g in after.gaps if isinstance(g.high, int) and isinstance(g.low, int))
    row = RebuildRow(
        dataset=state.dataset_urn,
        before=dict(state.watermark.positions) if state.watermark else {},
        after=dict(after.watermark.positions) if after.watermark else {},
        files=files,
        files_set_aside=len(aside),
        gap_records=gap_records,
        incarnation=after.incarnation,
        earlier=after.earlier,
    )
    plan.result.rows.append(row)
    plan.result.datasets += 1
    plan.result.set_aside_count += len(aside)
    plan.result.set_aside += aside[: max(0, _LISTED - len(plan.result.set_aside))]


def _problem(result: RebuildResult, text: str) -> None:
    result.problems_count += 1
    if len(result.problems) < _LISTED:
        result.problems.append(text)


def rebuild_store(store: JobStore, found: RebuildResult, run_id: str, who: str, *, accept_gaps: bool) -> RebuildResult:
    """Rebuilds an opened store. Safe to call again after a crash: until it has ended, no run begins.

    Args:
        store: the store, stale or new.
        found: what `plan_rebuild` found. It is planned anew once nobody can publish any more; should there be problems
            then, all that was written is that no run may begin.
        run_id: a new run's id.
        who: the person.
        accept_gaps: whether gaps are recorded as skipped.

    Raises:
        StaleStoreError: if the folders belong to another store of the job, or somebody else has begun meanwhile.
        FencedError: if somebody else has begun since.
        ConflictError: if somebody has changed a dataset by hand meanwhile, or the number of buckets is being changed.
        ConfigurationError: if they belong to another job.
    """
    _require_open(store)
    claim_folders(store)
    fs, roots = store.fs, store.roots
    epoch = max(found.epoch, store.job_log().refresh().fence_epoch + 1, *_marked(store))
    put_mark(fs, roots.output, epoch, Mark.REBUILD)
    _fence(store, epoch, run_id)
    for bucket in range(store.buckets):
        fence_bucket(store.bucket_log(bucket, epoch), epoch, run_id)
    # Without staged files nobody who still executes an old sequence can publish after the files are looked at.
    for staged in (older for older in staged_epochs(fs, roots.staging) if older < epoch):
        for bucket in staged_buckets(fs, roots.staging, staged):
            sweep_epoch(fs, roots.staging, staged, bucket)
    known = known_states(store)
    plan = _plan(store, known, accept_gaps=accept_gaps)
    if plan.result.problems:
        return plan.result
    _set_aside(
        store, epoch, plan.revoked
    )  # first: once their dataset is idle, nothing tells them from what is published
    by_bucket: dict[int, list[DatasetState]] = {}
    for state in plan.states:
        closed = msgspec.structs.replace(state, closed_epoch=epoch)
        by_bucket.setdefault(store.bucket_of(state.dataset_urn), []).append(closed)
    for bucket, states in by_bucket.items():
        log = store.bucket_log(bucket, epoch)
        written = partial(next_record.rebuild, epoch=epoch, states=tuple(states), known=known, who=who)
        fold = log.settle(written)
        require_fence(fold, epoch, log.folder)  # else others are at work here
        for state in states:
            _require_written(state, fold)
    _set_aside(store, epoch, plan.set_aside)
    _end(store, epoch, who)
    put_mark(fs, roots.output, epoch, Mark.CLEAN)
    plan.result.epoch, plan.result.written = epoch, True
    return plan.result


def _end(store: JobStore, epoch: int, who: str) -> None:
    """Has store, output and buckets' logs go on from where they are now, each as the others know it."""
    forget_heads(store, epoch, who)
    cut_ended(store, epoch, heads_now(store))
    put_mark(store.fs, store.roots.output, epoch, Mark.BEGAN)


def keep_store(store: JobStore, run_id: str, who: str) -> RebuildResult:
    """Declares what the store knows to be what counts, whatever is published: it gets an epoch above all others, and
    nothing else is changed. Raises as `rebuild_store`."""
    _require_open(store)
    claim_folders(store)
    epoch = max(store.job_log().refresh().fence_epoch + 1, *_marked(store))
    put_mark(store.fs, store.roots.output, epoch, Mark.REBUILD)
    _fence(store, epoch, run_id)
    _end(store, epoch, who)
    put_mark(store.fs, store.roots.output, epoch, Mark.ENDED)
    return RebuildResult(epoch=epoch, written=True)


def _require_open(store: JobStore) -> None:
    """Whether a rebuild can write in the store's logs; else nothing of it may begin."""
    require_counting(store, store.job_log().refresh())
    for bucket in range(store.buckets):
        require_not_moved(store, store.bucket_log(bucket).refresh())


def _marked(store: JobStore) -> list[int]:
    """Epochs that are above those of the marks in the output."""
    return [epoch + 1 for epoch in read_marks(store.fs, store.roots.output).values()]


def known_states(store: JobStore) -> dict[str, DatasetState]:
    """What the store knows of its datasets."""
    return {
        urn: state
        for bucket in range(store.buckets)
        for urn, state in store.bucket_log(bucket).refresh().datasets.items()
    }


def _fence(store: JobStore, epoch: int, run_id: str) -> None:
    log = store.job_log(epoch)
    fold = log.settle(partial(next_record.fence, epoch=epoch, run_id=run_id))
    if (fold.fence_epoch, fold.fence_run_id) != (epoch, run_id):
        raise StaleStoreError(
            "somebody else has begun on this store meanwhile",
            store=store.roots.store,
            expected=f"run {run_id}",
            found=f"run {fold.fence_run_id}, epoch {fold.fence_epoch}",
            todo="see that nothing else is at work, then rebuild again",
        )


def _require_written(state: DatasetState, fold: Fold) -> None:
    found = fold.state_of(state.dataset_urn)
    if found != state:
        raise ConflictError(
            "a dataset was changed by hand while the store was being rebuilt",
            dataset=state.dataset_urn,
            found=f"{found.status.value}, watermark {found.watermark}",
            todo="rebuild again",
        )


def _set_aside(store: JobStore, epoch: int, paths: list[str]) -> None:
    """Moves files out of the output, to the same places below a folder of the store."""
    fs, base = store.fs, f"{store.roots.store}/{SET_ASIDE}/epoch={epoch_name(epoch)}"
    touched: set[str] = set()
    for path in paths:
        target = f"{base}/{path.removeprefix(store.roots.output + '/')}"
        folder = target.rpartition("/")[0]
        if folder not in touched:
            fs.make_folders(folder)
        with suppress(FileNotFoundError):  # who abandons its sequence was first
            fs.rename(path, target)
        touched.add(folder)
    fs.sync(touched, store.roots.store)
    fs.sync({path.rpartition("/")[0] for path in paths}, store.roots.output)
