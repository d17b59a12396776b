"""A store made to know again what was published: its watermarks from the footers of the published files, and from the
ledgers of targets (see `app.auditing.joined`).

What the store knows is kept; what files of newer epochs say is added. Of a dataset, all epochs but the newest are
whole: nothing is sealed before what is pending is done. The newest is whole too if a run that left nothing open says so
in the output (`clean`), or if each of its partitions goes on, without a gap, where the store or the older files end.
Files do not go on so that name what another branch lacks; nor those with several of one, as others of theirs may have
the same offsets, unless the store knows the sequence and all of it is there. Else the files of that epoch are set
aside, and the next run reads their records again (from 0, where nothing else is known). What is so of epochs in which
error files were fed again is said in `app.auditing.superseded`. In which incarnation of a source that was made again
the watermark counts, and what is covered, is said in `app.auditing.continued`.

With at-least-once no epoch needs to be whole: of files since then only what continues without a gap is taken for
published, of several of one only what a clean run comes after, and the next run publishes the rest again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import msgspec

from distcommit.app.auditing.continued import Continued, EpochFiles
from distcommit.app.auditing.coverage import covered_by
from distcommit.app.auditing.joined import Branches, continued, folders_of, half_way
from distcommit.app.auditing.ledgers import Ledgers, open_ledgers
from distcommit.app.auditing.published import PublishedFile, PublishedFolder, may_lack
from distcommit.app.auditing.superseded import Replaced, replaced_in
from distcommit.core.errors import ConflictError, CorruptError, UnknownVersionError
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.source import Source
from distcommit.core.records.log_records import DatasetState, DatasetStatus, TargetEpochs
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work import SkippedRange
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.renaming import renamed
from distcommit.sinks.files.offsets import OffsetSets, offsets_of
from distcommit.stores.folders.ownership import Mark, read_marks
from distcommit.stores.folders.staging import staged_epochs
from distcommit.stores.state.job_store import JobStore

_LISTED = 100


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

    `epoch`: the rebuild's; above all that are found in the folders. `repaired`: damaged files beside the logs that were
    written again, and the job log, if what can't be read of it was set aside.
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
    repaired: list[str] = []


@dataclass(slots=True)
class Plan:
    """What a rebuild is going to do: states without their closing epoch, and files to set aside; `revoked` are those of
    sequences that somebody is abandoning."""

    states: list[DatasetState] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    newest_epoch: int = 0
    result: RebuildResult = field(default_factory=RebuildResult)


def planned(
    store: JobStore,
    known: dict[str, DatasetState],
    flow: TaskFlow | None,
    *,
    accept_gaps: bool,
    tick: Callable[[], None] = lambda: None,
) -> Plan:
    with open_ledgers(flow, store) if flow is not None else nullcontext(Ledgers()) as ledgers:
        plan = _planned_with(store, known, ledgers, accept_gaps=accept_gaps, tick=tick)
    if flow is not None:
        _name_now(plan, known, flow.source)
    return plan


def _planned_with(
    store: JobStore, known: dict[str, DatasetState], ledgers: Ledgers, *, accept_gaps: bool, tick: Callable[[], None]
) -> Plan:
    marks = read_marks(store.fs, store.roots.output)
    plan = Plan(newest_epoch=max(0, *marks.values(), *staged_epochs(store.fs, store.roots.staging)))
    for problem in ledgers.unreadable:
        _problem(plan.result, problem)
    seen: set[str] = set()
    for folder in folders_of(store, ledgers):
        tick()
        for problem in folder.unusable:
            _problem(plan.result, problem)
        rows = [found.row for found in ledgers.of(folder.name)]
        urn = folder.dataset_urn or next((row.dataset_urn for row in rows), "")
        if urn:
            seen.add(urn)
            state = known.get(urn) or DatasetState(urn)
            rest = _without_revoked(plan, folder, state)
            if ledgers.branches:
                _branches(plan, store, rest, state, rows, ledgers.bases(rows), marks, accept_gaps=accept_gaps)
            else:
                _dataset(plan, store, rest, state, marks, accept_gaps=accept_gaps)
    for urn, state in known.items():
        if urn not in seen and state.sequence is not None:
            after = Continued(state)
            _add(plan, after.state_after(state, 0, ledgers.bases([])), state, after, 0, [])
    return plan


def _name_now(plan: Plan, known: dict[str, DatasetState], source: Source) -> None:
    """Has datasets go on where the source has read them under other names, if that is ahead of where they stand."""
    made = {**known, **{state.dataset_urn: state for state in plan.states}}
    try:
        states = renamed(made.values(), source.named_now, only_ahead=True)
    except ConflictError as error:
        _problem(plan.result, str(error))
        return
    for state in states:
        urn = state.dataset_urn
        if state == made.get(urn):
            continue
        after = state.watermark or Watermark({})
        rows = {row.dataset: row for row in plan.result.rows}
        row = rows.get(urn) or RebuildRow(dataset=urn, before={}, after={}, files=0, files_set_aside=0, gap_records=0)
        rows[urn] = msgspec.structs.replace(row, after=dict(after.positions), incarnation=after.incarnation)
        plan.states = [*(each for each in plan.states if each.dataset_urn != urn), state]
        plan.result.rows, plan.result.datasets = list(rows.values()), len(rows)


def _without_revoked(plan: Plan, folder: PublishedFolder, state: DatasetState) -> PublishedFolder:
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


def _branches(
    plan: Plan,
    store: JobStore,
    folder: PublishedFolder,
    state: DatasetState,
    rows: Sequence[LedgerRow],
    bases: TargetEpochs,
    marks: dict[Mark, int],
    *,
    accept_gaps: bool,
) -> None:
    """A dataset of which some branches commit at a target."""
    sequence, at_targets = state.sequence, max((row.epoch for row in rows), default=0)
    if state.status is DatasetStatus.REVOKING and sequence is not None and sequence.epoch <= at_targets:
        told = f"{state.dataset_urn}: epoch {sequence.epoch} is being abandoned, and a target still has it"
        _problem(plan.result, f"{told}; go on with `distcommit dataset release {state.dataset_urn} abandon`")
    plan.newest_epoch = max(plan.newest_epoch, *(max(row.epoch, row.base, row.revoked) for row in rows), 0)
    replaced = _look(plan, folder, max(state.done_epoch, at_targets), marks)
    again = [file for files in replaced.whole.values() for file in files]
    files = [file for file in (*replaced.appended, *again) if file.footer.epoch > state.done_epoch]
    branches, aside = Branches(files, rows, replaced.taken), list(replaced.aside)
    if branches.newest_epoch <= state.done_epoch and not aside and sequence is None:
        return
    try:
        if half := half_way(branches, state, marks[Mark.CLEAN], store):
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


def _look(plan: Plan, folder: PublishedFolder, done_epoch: int, marks: dict[Mark, int]) -> Replaced:
    """A dataset's files, and what became of those that were fed again."""
    for file in folder.files:
        plan.newest_epoch = max(plan.newest_epoch, file.footer.epoch)
        if file.footer.records and not file.footer.offsets:
            _problem(plan.result, f"{file.path}: its footer names no offsets")
    replaced = replaced_in(folder, done_epoch, marks[Mark.CLEAN])
    plan.newest_epoch = max(plan.newest_epoch, replaced.newest_epoch)
    return replaced


def _gap(gap: SkippedRange) -> str:
    return f"partition {gap.partition}: no file has offsets {gap.low} to {gap.high}"


def _gaps(result: RebuildResult, urn: str, gaps: Iterable[str], *, accept_gaps: bool) -> None:
    """Tells what is lacking."""
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
    marks: dict[Mark, int],
    *,
    accept_gaps: bool,
) -> None:
    result, urn = plan.result, state.dataset_urn
    replaced = _look(plan, folder, state.done_epoch, marks)
    newer = _newer(result, replaced.appended, state, store, marks[Mark.CLEAN])
    again = {epoch: files for epoch, files in replaced.whole.items() if epoch > state.done_epoch}
    has_taken = replaced.taken_epoch > state.done_epoch
    if not (newer or again or has_taken or replaced.aside) and state.sequence is None:
        return
    fed = replaced.fed_again(state.done_epoch)
    was_unsealed = any(
        epoch <= marks[Mark.UNSEALED] for files in again.values() for file in files for epoch in file.footer.replaces
    )
    first = _first(fed, newer, begin_at_0=was_unsealed)
    after, aside = Continued(state, replaced.mended(), first), list(replaced.aside)
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
    if not (at_least_once or was_unsealed):
        after.take_fed(fed.get(after.incarnation, OffsetSets()), state)
    if has_taken:
        after.mend(after.incarnation, replaced.taken_epoch)  # of which no file need be there
    _gaps(result, urn, map(_gap, after.gaps), accept_gaps=accept_gaps)
    there = sum(len(files.paths) for files in newer) + sum(map(len, again.values()))
    _add(plan, after.state_after(state, replaced.taken_epoch, {}), state, after, max(0, there - len(aside)), aside)


def _take(after: Continued, replaced: Replaced, newer: list[EpochFiles]) -> None:
    """Takes what was replaced as published, with the files that nothing replaced, in the incarnation that the newest
    files count in: all of it is older, and what was replaced may lie anywhere among the others."""
    taken = replaced.taken_by_incarnation()
    named = [files.incarnation for files in newer if files.incarnation]
    newest = named[-1] if named else after.incarnation or next(reversed(taken), "")
    if newest in taken:
        after.move(EpochFiles(after.done_epoch, newest, replaced.mended()[newest]))


def _mend(after: Continued, again: dict[int, list[PublishedFile]], until: int) -> None:
    """Moves past the epochs up to that one in which records were fed again; takes them off."""
    for epoch in sorted(epoch for epoch in again if epoch <= until):
        read: dict[str, int] = {}
        for file in again.pop(epoch):
            name = file.footer.incarnation
            read[name] = max(read.get(name, 0), *file.footer.replaces)
        for name in sorted(read, key=lambda name: (read[name], name)):
            after.mend(name, epoch, read[name])
        after.mend(after.incarnation, epoch)


def _first(fed: dict[str, OffsetSets], newer: list[EpochFiles], *, begin_at_0: bool) -> dict[str, dict[str, int]]:
    """Where partitions begin of which no other file has anything before what was fed again; at 0 where the run that
    read it published before it wrote anything down, so that more may be lacking."""
    found: dict[str, dict[str, int]] = {}
    for incarnation, sets in fed.items():
        others = OffsetSets()
        for files in newer:
            if files.incarnation in ("", incarnation):
                others.update(files.covered)
        for partition in sets.partitions():
            low = 0 if begin_at_0 else next(sets.ranges(partition))[0]
            if low < next(others.ranges(partition), (low + 1, 0))[0]:
                found.setdefault(incarnation, {})[partition] = low
    return found


def _newer(
    result: RebuildResult, files: list[PublishedFile], state: DatasetState, store: JobStore, clean_epoch: int
) -> list[EpochFiles]:
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
        lacks = epoch > clean_epoch and may_lack(group, known, store)
        paths = tuple(file.path for file in group)
        found.append(EpochFiles(epoch, incarnation, covered, paths, skipped, named_in_all, may_lack=lacks))
    return found


def _add(plan: Plan, new: DatasetState, state: DatasetState, after: Continued, files: int, aside: list[str]) -> None:
    plan.states.append(new)
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
