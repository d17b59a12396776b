"""Plan the rebuild of a store: derive watermarks from the footers of published files and the ledgers of targets (see
`app.auditing.offsets.joined_branches`).

The readable state of the store stays, and files of newer epochs are added. For each dataset, all epochs except the
newest are complete, because a run seals a dataset only after its pending sequence is done. The newest epoch is complete
if its run has the mark `clean` in the output, or if each partition continues without a gap from the store or from older
files.

Such a continuation proves nothing if the files name records without an outcome in another branch. Nor does it prove
anything if several records were made of one, because missing files may have the same offsets; unless the store has the
sequence and all of its files exist.

If the newest epoch is not complete, its files are set aside, and the next run reads their records again. A partition
without any known position is read from 0. See `app.auditing.files.replaced_files` for reprocessed epochs, and
`app.auditing.offsets.read_progress` for recreated sources.

A sequence with changed commit infos may be committed in part, which neither files nor ledgers show. It is a problem.

With at-least-once only files that continue without a gap count as published; files with several records made of one
count only up to the newest clean run. The next run publishes the rest again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import msgspec

from distcommit.app.admin.rebuild_result import RebuildResult, RebuildRow
from distcommit.app.auditing.files.read_published_files import PublishedFile, PublishedFolder, may_lack
from distcommit.app.auditing.files.replaced_files import ReplacedFiles, replaced_in
from distcommit.app.auditing.offsets.branch_coverage import covered_by
from distcommit.app.auditing.offsets.joined_branches import Branches, continued, folders_of, partial_sequence
from distcommit.app.auditing.offsets.read_progress import Continuation, EpochFiles
from distcommit.app.auditing.target_ledgers import Ledgers, open_ledgers
from distcommit.core.errors import ConflictError, CorruptError, UnknownVersionError
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.source import Source
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.records.sealed_sequences import TargetEpochs
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import SkippedRange
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.dataset_renaming import renamed
from distcommit.sinks.files.offset_sets import OffsetSets, offsets_of
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.stores.folders.staging import staged_epochs
from distcommit.stores.state.job_store import JobStore

_LISTED = 100


@dataclass(slots=True)
class Plan:
    """The planned changes of a rebuild.

    Attributes:
        states: new states, without their closing epoch.
        set_aside: paths of files to move out of the output, because the next run reads their records again.
        revoked: paths of files of sequences that are being abandoned, to move out of the output.
        newest_epoch: newest epoch in markers, files and ledgers; 0 for an empty output.
        result: changes to report.
    """

    states: list[DatasetState] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    newest_epoch: int = 0
    result: RebuildResult = field(default_factory=RebuildResult)


def planned(
    store: JobStore,
    states: dict[str, DatasetState],
    flow: TaskFlow | None,
    *,
    accept_gaps: bool,
    tick: Callable[[], None] = lambda: None,
) -> Plan:
    with open_ledgers(flow, store) if flow is not None else nullcontext(Ledgers()) as ledgers:
        plan = _planned_with(store, states, ledgers, accept_gaps=accept_gaps, tick=tick)
    if flow is not None:
        _name_now(plan, states, flow.source)
    return plan


def _planned_with(
    store: JobStore, states: dict[str, DatasetState], ledgers: Ledgers, *, accept_gaps: bool, tick: Callable[[], None]
) -> Plan:
    run_markers = read_markers(store.fs, store.roots.output)
    plan = Plan(newest_epoch=max(0, *run_markers.values(), *staged_epochs(store.fs, store.roots.staging)))
    for problem in ledgers.unreadable:
        _problem(plan.result, problem)
    for state in states.values():
        if state.open is not None and state.open.changes:
            problem = f"{state.dataset_urn}: epoch {state.open.sequence.epoch} may be committed in part"
            remedy = "commit it with `distcommit recover`, or quarantine it and release it with abandon or accept"
            _problem(plan.result, f"{problem}; {remedy}")
    visited: set[str] = set()
    for folder in folders_of(store, ledgers):
        tick()
        for problem in folder.unusable:
            _problem(plan.result, problem)
        rows = [ledger.row for ledger in ledgers.of(folder.name)]
        urn = folder.dataset_urn or next((row.dataset_urn for row in rows), "")
        if urn:
            visited.add(urn)
            state = states.get(urn) or DatasetState(urn)
            remainder = _without_revoked(plan, folder, state)
            if ledgers.branches:
                _branches(
                    plan, store, remainder, state, rows, ledgers.bases(rows), run_markers, accept_gaps=accept_gaps
                )
            else:
                _dataset(plan, store, remainder, state, run_markers, accept_gaps=accept_gaps)
    for urn, state in states.items():
        if urn not in visited and state.sequence is not None:
            after = Continuation(state)
            _add(plan, after.state_after(state, 0, ledgers.bases([])), state, after, 0, [])
    return plan


def _name_now(plan: Plan, dataset_states: dict[str, DatasetState], source: Source) -> None:
    """Rename datasets to their present names. If a partition has positions under several names, the furthest one is
    used.
    """
    renamed_states = {**dataset_states, **{state.dataset_urn: state for state in plan.states}}
    try:
        states = renamed(renamed_states.values(), source.current_name, only_ahead=True)
    except ConflictError as error:
        _problem(plan.result, str(error))
        return
    for state in states:
        urn = state.dataset_urn
        if state == renamed_states.get(urn):
            continue
        after = state.watermark or Watermark({})
        rows = {row.dataset: row for row in plan.result.rows}
        row = rows.get(urn) or RebuildRow(
            dataset=urn, positions_before={}, positions_after={}, files=0, files_set_aside=0, records_in_gaps=0
        )
        rows[urn] = msgspec.structs.replace(row, positions_after=dict(after.positions), incarnation=after.incarnation)
        plan.states = [*(dataset_state for dataset_state in plan.states if dataset_state.dataset_urn != urn), state]
        plan.result.rows, plan.result.datasets = list(rows.values()), len(rows)


def _without_revoked(plan: Plan, folder: PublishedFolder, state: DatasetState) -> PublishedFolder:
    """Return the folder without the files of a sequence that is being abandoned. These files are added to
    `plan.revoked`, because an abandoning process may still delete them.
    """
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


def _branches(
    plan: Plan,
    store: JobStore,
    folder: PublishedFolder,
    state: DatasetState,
    rows: Sequence[LedgerRow],
    bases: TargetEpochs,
    run_markers: dict[Marker, int],
    *,
    accept_gaps: bool,
) -> None:
    """Plan a dataset with branches that commit at a target."""
    sequence, at_targets = state.sequence, max((row.epoch for row in rows), default=0)
    if state.status is DatasetStatus.REVOKING and sequence is not None and sequence.epoch <= at_targets:
        problem = f"{state.dataset_urn}: epoch {sequence.epoch} is being abandoned, and a target still has it"
        _problem(plan.result, f"{problem}; go on with `distcommit dataset release {state.dataset_urn} abandon`")
    plan.newest_epoch = max(plan.newest_epoch, *(max(row.epoch, row.base, row.revoked) for row in rows), 0)
    replaced = _look(plan, folder, max(state.done_epoch, at_targets), run_markers)
    reprocessed = [file for files in replaced.complete.values() for file in files]
    files = [file for file in (*replaced.appended, *reprocessed) if file.footer.epoch > state.done_epoch]
    branches, aside = Branches(files, rows, replaced.records), list(replaced.aside)
    if branches.newest_epoch <= state.done_epoch and not aside and sequence is None:
        return
    try:
        if half := partial_sequence(branches, state, run_markers[Marker.CLEAN], store):
            aside += [file.path for file in half]
            branches = branches.without(branches.newest_epoch)
        after, lacking = continued(branches, state)
        for file in half:
            after.leave(EpochFiles(file.footer.epoch, file.footer.incarnation, file.offsets, named=file.named))
    except (CorruptError, UnknownVersionError) as error:
        _problem(plan.result, f"{state.dataset_urn}: its ledger can't be read: {error}")
        return
    _gaps(plan.result, state.dataset_urn, [*lacking, *map(_gap, after.gaps)], accept_gaps=accept_gaps)
    new = after.state_after(state, replaced.taken_epoch, bases)
    _add(plan, new, state, after, len(branches.files), aside)


def _look(plan: Plan, folder: PublishedFolder, done_epoch: int, run_markers: dict[Marker, int]) -> ReplacedFiles:
    """Return a dataset's files by kind: read from the source, reprocessed, or to set aside."""
    for file in folder.files:
        plan.newest_epoch = max(plan.newest_epoch, file.footer.epoch)
        if file.footer.records and not file.footer.offsets:
            _problem(plan.result, f"{file.path}: its footer names no offsets")
    replaced = replaced_in(folder, done_epoch, run_markers[Marker.CLEAN])
    plan.newest_epoch = max(plan.newest_epoch, replaced.newest_epoch)
    return replaced


def _gap(gap: SkippedRange) -> str:
    return f"partition {gap.partition}: no file has offsets {gap.low} to {gap.high}"


def _gaps(result: RebuildResult, urn: str, gaps: Iterable[str], *, accept_gaps: bool) -> None:
    """Add missing offsets to the gaps of the result and, unless gaps are accepted, to its problems."""
    for gap in gaps:
        text = f"{urn} {gap}"
        if not accept_gaps:
            _problem(result, text)
        if len(result.gaps) < _LISTED:
            result.gaps.append(text)


def _dataset(
    plan: Plan,
    store: JobStore,
    folder: PublishedFolder,
    state: DatasetState,
    run_markers: dict[Marker, int],
    *,
    accept_gaps: bool,
) -> None:
    result, urn = plan.result, state.dataset_urn
    replaced = _look(plan, folder, state.done_epoch, run_markers)
    newer = _newer(result, replaced.appended, state, store, run_markers[Marker.CLEAN])
    reprocessed = {epoch: files for epoch, files in replaced.complete.items() if epoch > state.done_epoch}
    has_taken = replaced.taken_epoch > state.done_epoch
    if not (newer or reprocessed or has_taken or replaced.aside) and state.sequence is None:
        return
    fed = replaced.lost_offsets(state.done_epoch)
    was_unsealed = any(
        epoch <= run_markers[Marker.UNSEALED]
        for files in reprocessed.values()
        for file in files
        for epoch in file.footer.replaces
    )
    first = _first(replaced.with_undone(fed), newer, begin_at_0=was_unsealed)
    after, aside = Continuation(state, replaced.reprocessed_offsets(), first), list(replaced.aside)
    if has_taken:
        _add_replaced(after, replaced, newer)
    at_least_once = bool(newer) and newer[0].epoch <= run_markers[Marker.UNSEALED]
    if at_least_once:
        after.cover(newer)
    for files in newer if not at_least_once else ():
        _add_reprocessed(after, reprocessed, files.epoch)
        is_newest = files is newer[-1] and files.epoch >= replaced.newest_epoch
        is_newest = is_newest and files.epoch > replaced.taken_epoch
        if is_newest and files.epoch > run_markers[Marker.CLEAN] and not after.joins(files):
            after.leave(files)
            aside += files.paths
        else:
            after.move(files)
    _add_reprocessed(after, reprocessed, plan.newest_epoch)
    if not (at_least_once or was_unsealed):
        after.add_reprocessed(fed.get(after.incarnation, OffsetSets()), state)
    if has_taken:
        after.add_complete_epoch(after.incarnation, replaced.taken_epoch)  # which needs no file
    _gaps(result, urn, map(_gap, after.gaps), accept_gaps=accept_gaps)
    file_count = sum(len(files.paths) for files in newer) + sum(map(len, reprocessed.values()))
    _add(plan, after.state_after(state, replaced.taken_epoch, {}), state, after, max(0, file_count - len(aside)), aside)


def _add_replaced(after: Continuation, replaced: ReplacedFiles, newer: list[EpochFiles]) -> None:
    """Count replaced and reprocessed records as published, in the incarnation of the newest files."""
    replaced_records = replaced.records_by_incarnation()
    named = [files.incarnation for files in newer if files.incarnation]
    newest = named[-1] if named else after.incarnation or next(reversed(replaced_records), "")
    if newest in replaced_records:
        after.move(EpochFiles(after.done_epoch, newest, replaced.reprocessed_offsets()[newest]))


def _add_reprocessed(after: Continuation, reprocessed: dict[int, list[PublishedFile]], until: int) -> None:
    """Move past the epochs of reprocessed records, up to `until`, and remove these epochs."""
    for epoch in sorted(epoch for epoch in reprocessed if epoch <= until):
        read: dict[str, int] = {}
        for file in reprocessed.pop(epoch):
            name = file.footer.incarnation
            read[name] = max(read.get(name, 0), *file.footer.replaces)
        for name in sorted(read, key=lambda name: (read[name], name)):
            after.add_complete_epoch(name, epoch, read[name])
        after.add_complete_epoch(after.incarnation, epoch)


def _first(
    reprocessed: dict[str, OffsetSets], newer: list[EpochFiles], *, begin_at_0: bool
) -> dict[str, dict[str, int]]:
    """Return the first position of each partition whose oldest files were reprocessed or compacted, by incarnation.
    With `begin_at_0` (at-least-once) it is 0, because records before the reprocessed ones may be missing.
    """
    first_positions: dict[str, dict[str, int]] = {}
    for incarnation, sets in reprocessed.items():
        other_offsets = OffsetSets()
        for files in newer:
            if files.incarnation in ("", incarnation):
                other_offsets.update(files.covered)
        for partition in sets.partitions():
            low = 0 if begin_at_0 else next(sets.ranges(partition))[0]
            if low < next(other_offsets.ranges(partition), (low + 1, 0))[0]:
                first_positions.setdefault(incarnation, {})[partition] = low
    return first_positions


def _newer(
    result: RebuildResult, files: list[PublishedFile], state: DatasetState, store: JobStore, clean_epoch: int
) -> list[EpochFiles]:
    """Return the files of epochs after the stored done epoch, by epoch. The epoch of a stored sequence is included if
    it has files, or if the sequence has no steps and a newer epoch has files.
    """
    by_epoch: dict[int, list[PublishedFile]] = {}
    for file in files:
        if file.footer.epoch > state.done_epoch:
            by_epoch.setdefault(file.footer.epoch, []).append(file)
    sequence = state.sequence
    if sequence is not None and not sequence.steps and by_epoch and sequence.epoch < max(by_epoch):
        by_epoch.setdefault(sequence.epoch, [])
    epoch_files: list[EpochFiles] = []
    for epoch, group in sorted(by_epoch.items()):
        sealed_sequence = sequence if sequence is not None and sequence.epoch == epoch else None
        skipped = sealed_sequence.skipped if sealed_sequence is not None else ()
        incarnation = (
            sealed_sequence.high.incarnation if sealed_sequence is not None and sealed_sequence.high is not None else ""
        )
        covered = offsets_of(skipped)
        covered.update(covered_by((file.footer, file.offsets) for file in group))
        named_in_all = OffsetSets()
        for file in group:
            covered.update(file.holes)
            named_in_all.update(file.named)
            named = file.footer.incarnation
            if named and incarnation not in ("", named):
                _problem(
                    result,
                    f"{file.path}: epoch {epoch} of this dataset counts in two incarnations, {incarnation}, {named}",
                )
            incarnation = named or incarnation
        lacks = epoch > clean_epoch and may_lack(group, sealed_sequence, store)
        paths = tuple(file.path for file in group)
        epoch_files.append(EpochFiles(epoch, incarnation, covered, paths, skipped, named_in_all, may_lack=lacks))
    return epoch_files


def _add(plan: Plan, new: DatasetState, state: DatasetState, after: Continuation, files: int, aside: list[str]) -> None:
    plan.states.append(new)
    plan.set_aside += aside
    gap_records = sum(g.high - g.low for g in after.gaps if isinstance(g.high, int) and isinstance(g.low, int))
    row = RebuildRow(
        dataset=state.dataset_urn,
        positions_before=dict(state.watermark.positions) if state.watermark else {},
        positions_after=dict(after.watermark.positions) if after.watermark else {},
        files=files,
        files_set_aside=len(aside),
        records_in_gaps=gap_records,
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
