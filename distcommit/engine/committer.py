"""Commit work on one bucket: poll task states, seal, execute, close, clean up.

Any number of committers may work on one bucket at a time; the bucket's log orders them. What one of them leaves
half-way, another finishes: a twin, the drain, or the next run.

Committers of several buckets work in step (`model.lockstep`): segments of their logs, effects and what makes them
durable go together, so that the disk's barriers are as many for all of them as for one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from distcommit.engine.failures import Failure, judged, judging, noting_failed, noting_left
from distcommit.engine.reports import Report
from distcommit.engine.settings import RunSettings
from distcommit.fs.local import TEMPORARY
from distcommit.model.errors import (
    CorruptError,
    DistcommitError,
    LostError,
    plain_text,
    printable,
)
from distcommit.model.lockstep import Work
from distcommit.model.log_records import (
    DatasetState,
    DatasetStatus,
    SealedSequence,
    SequenceName,
)
from distcommit.model.sink import CommitRequest
from distcommit.model.steps import CommitStep, Lost, StepContext, Verification
from distcommit.model.watermark import Watermark
from distcommit.model.work import DatasetPlan, TaskState, positions_lost
from distcommit.protocol import next_record
from distcommit.protocol.fold import Fold, may_seal
from distcommit.protocol.paths import OUTPUT_PROBE
from distcommit.protocol.readiness import Nothing, Ready, Wait, readiness, succeeded
from distcommit.steps.execution import Execution, Outcomes
from distcommit.steps.registry import dump_steps, load_steps
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.steps.sink import SinkCommitStep
from distcommit.stores.fencing import require_fence
from distcommit.stores.staging import StagedFiles, list_attempts, remove_attempts
from distcommit.stores.task_states import TaskStateReader

logger = logging.getLogger(__name__)


class BucketCommitter:
    """The commit work on one bucket in one run.

    Args:
        settings: the run.
        bucket: the bucket.
        report: where counts go.
        plans: what the run intends for the bucket's datasets; empty when only older sequences are replayed.
    """

    def __init__(self, settings: RunSettings, bucket: int, report: Report, plans: Iterable[DatasetPlan] = ()) -> None:
        self._settings, self._bucket, self._report = settings, bucket, report
        store = settings.store
        self._fs = store.fs
        self._probe = f"{OUTPUT_PROBE}{bucket}"
        self._context = StepContext(store.fs, store.roots.staging, store.roots.output, settings.flow.own_sink)
        self._log = store.bucket_log(bucket, settings.epoch)
        self._reader = TaskStateReader(store.fs, store.roots.store, settings.run_id, bucket)
        self._open = {plan.dataset_urn: plan for plan in plans}
        self._states: dict[str, list[TaskState]] = {}
        self._sealed_here: set[SequenceName] = set()
        self._made: dict[SequenceName, tuple[SealedSequence, list[CommitStep]]] = {}
        self._nothing: dict[str, tuple[str, bool]] = {}
        self._unpublished: dict[str, DistcommitError] = {}
        self._unfinished: dict[str, Failure] = {}
        self._unreadable_states = ""

    def know(self, name: str, states: Sequence[TaskState]) -> None:
        """Takes task states that this task has published under that file name; they need not be read back."""
        self._reader.know(name, states)

    def sweep(self, *, ended: bool) -> Work[None]:
        """Seals what is complete, and executes, closes and cleans up what this committer sealed. With at-least-once,
        what is complete is published first, and sealed and closed by one record.

        Args:
            ended: whether ingest has ended, as read before this call. Then what is missing counts as failed, and
                sequences of this run that others sealed are taken over.

        Raises:
            FencedError: if a newer run has fenced the bucket; nothing more was sealed.
            DistcommitError, OSError: if the store can't be read or written; another sweep takes it up again.
        """
        fold = self._log.refresh()
        require_fence(fold, self._settings.epoch, self._log.folder)
        self._clean_up(self._settle_open(fold))  # what others have closed
        if not self._open:
            return
        self.look()
        ready = self._complete(fold, ended)
        if self._settings.at_least_once:
            self._clean_up(self._settle_open((yield from self._publish_unsealed(ready))))
            return
        yield from self._seal(ready)
        if not self._settings.job_level:
            yield from self.publish(take_over=ended)

    def look(self) -> list[TaskState]:
        """Takes in the task states that were published since the last look, by anybody, and returns them.

        Raises:
            OSError: if they can't be read; the next look takes them up again.
        """
        states = self._new_states()
        for state in states:
            if state.dataset_urn in self._open:
                self._states.setdefault(state.dataset_urn, []).append(state)
        return states

    def _new_states(self) -> list[TaskState]:
        """Task states that are new. A corrupt file is left out: its work units count as never finished."""
        try:
            return self._reader.poll()
        except CorruptError as error:
            logger.warning("task states are lost: %s", error, extra={"bucket": self._bucket})
            self._unreadable_states = f"; {error}"
            return self._reader.poll()

    def publish(self, *, take_over: bool) -> Work[None]:
        """Executes and closes pending sequences of this run: those sealed here, or all of them with `take_over`."""
        fold = self._log.refresh()
        todo = [
            state
            for state in fold.pending()
            if state.sequence is not None
            and state.sequence.epoch == self._settings.epoch
            and (take_over or _name(state.sequence) in self._sealed_here)
        ]
        if any(_state_name(state) not in self._sealed_here for state in todo):
            self._remove_probes()
        sequences = [state.sequence for state in todo if state.sequence is not None]
        fold = yield from self._execute_and_close(sequences, fold, last=take_over)
        self._clean_up(self._settle_open(fold))

    def replay(self, decided_epochs: frozenset[int]) -> Work[None]:
        """Finishes what older runs sealed: verifies every step, executes what is missing, closes.

        Held sequences that were never decided are dropped. LOST quarantines at once; another failure quarantines after
        `max_attempts` runs; an outage is nobody's attempt.
        """
        epoch = self._settings.epoch  # what this run has sealed meanwhile is not this function's
        pending = [s for s in self._log.refresh().pending() if s.sequence is not None and s.sequence.epoch < epoch]
        undecided = [s for s in pending if s.held and s.sequence is not None and s.sequence.epoch not in decided_epochs]
        if undecided:
            yield from self._drop([_name(s.sequence) for s in undecided if s.sequence is not None])
        doomed = {state.dataset_urn for state in undecided}
        todo = [s.sequence for s in pending if s.sequence is not None and s.dataset_urn not in doomed]
        if pending:
            self._remove_probes()
        before = self._report.datasets_committed
        yield from self._execute_and_close(todo, self._log.refresh(), verify_first=True)
        self._report.sequences_replayed += self._report.datasets_committed - before
        self._report.datasets_committed = before

    def count_outcomes(self, plans: Iterable[DatasetPlan]) -> None:
        """After the drain: adds to the report what became of each dataset of the plan, as the log tells it."""
        fold, epoch, report = self._log.refresh(), self._settings.epoch, self._report
        report.sequences_left = 0
        for plan in plans:
            urn = plan.dataset_urn
            state = fold.state_of(urn)
            if state.done_epoch == epoch:
                report.datasets_published += 1
                report.records_published += state.done_records
                report.files_published += state.done_files
                self._count_lost(plan)
                if state.done_left_out:
                    report.datasets_partial += 1
                    report.explain(urn, "partly failed", state.done_left_out)
            elif state.sequence is not None:
                report.sequences_left += 1
                report.datasets_quarantined += state.status is DatasetStatus.QUARANTINED
                failure = self._unfinished.get(urn) or Failure("", state.reason, outage=state.outage)
                kind = "outage" if failure.outage else f"left {state.status.value}"
                report.explain(urn, kind, failure.reason)
            elif urn in self._nothing:
                self._count_nothing(urn)
            elif urn in self._unpublished:
                report.sequences_left += 1
                report.explain(urn, "left unpublished", str(self._unpublished[urn]))
            else:
                self._count_changed_by_hand(urn)

    def _count_nothing(self, urn: str) -> None:
        reason, failed = self._nothing[urn]
        self._report.datasets_failed += failed
        self._report.datasets_unchanged += not failed
        if failed:
            self._report.explain(urn, "failed", reason)

    def _count_changed_by_hand(self, urn: str) -> None:
        self._report.datasets_failed += 1
        self._report.explain(urn, "failed", "its watermark was changed by hand while the run read it")

    def _count_lost(self, plan: DatasetPlan) -> None:
        lost = positions_lost(plan.skipped)
        if lost:
            self._report.positions_lost += lost
            reasons = "; ".join(f"partition {skip.partition}: {skip.reason}" for skip in plan.skipped)
            logger.warning("%d positions of %s are lost: %s", lost, printable(plan.dataset_urn), printable(reasons))

    def count_held(self, plans: Iterable[DatasetPlan]) -> None:
        """Job-level, after the drain: what the driver's decision rests on, from the fold; and why it can't be made, as
        far as these datasets are to blame."""
        fold, report = self._log.refresh(), self._report
        for plan in plans:
            urn = plan.dataset_urn
            state = fold.state_of(urn)
            if state.sequence is not None and state.sequence.epoch == self._settings.epoch:
                ready = state.status is DatasetStatus.PENDING
                report.datasets_sealed += ready
                report.datasets_held += 1
                if not ready:
                    report.explain(urn, f"left {state.status.value}", state.reason)
            elif urn in self._nothing:
                report.datasets_sealed += not self._nothing[urn][1]  # nothing to publish, and that is in order
                self._count_nothing(urn)
            else:
                self._count_changed_by_hand(urn)

    # -- sealing

    def _complete(self, fold: Fold, ended: bool) -> list[SealedSequence]:
        """The sequences of datasets that are ready, and notes of those for which nothing will be committed."""
        ready: list[SealedSequence] = []
        self._made.clear()
        staged = StagedFiles(self._fs, self._context.staging_root)
        decided: list[DatasetPlan] = []
        for urn, plan in self._open.items():
            if not may_seal(fold, self._settings.epoch, urn, plan.planned_low):
                continue  # sealed, or changed by hand
            if ended or succeeded(plan, self._states.get(urn, ())):
                decided.append(plan)
        staged.look(state for plan in decided for state in self._states.get(plan.dataset_urn, ()))
        for plan in decided:
            urn = plan.dataset_urn
            states = self._states.get(urn, ())
            there = partial(self._is_there, staged)
            answer = readiness(plan, states, policy=self._settings.policy, ingest_ended=ended, staged=there)
            match answer:
                case Wait():
                    continue
                case Nothing(reason, failed):
                    del self._open[urn]
                    self._states.pop(urn, None)
                    self._nothing[urn] = (reason + self._unreadable_states * failed, failed)
                case Ready(winners, high, left_out):
                    left_out += self._unreadable_states * bool(left_out)
                    ready.append(self._sequence(plan, winners, high, left_out, staged))
        return ready

    def _is_there(self, staged: StagedFiles, state: TaskState) -> bool:
        """Whether all outputs are staged or, with at-least-once, published: another committer of this run may have
        begun to, and what it left half-way is finished here."""
        if staged.has_all_of(state):
            return True
        if not self._settings.at_least_once:
            return False
        steps = FsRenameCommitStep.of_all(self._context, state.outputs)
        return not any(isinstance(answer, Lost) for answer in FsRenameCommitStep.verify_all(steps))

    def _sequence(
        self, plan: DatasetPlan, winners: Sequence[TaskState], high: Watermark, left_out: str, staged: StagedFiles
    ) -> SealedSequence:
        steps: list[CommitStep] = []
        for state in winners:
            steps += FsRenameCommitStep.of_all(self._context, state.outputs, whole=staged.are_whole(state))
        files, records = len(steps), sum(file.records for state in winners for file in state.outputs)
        if self._context.sink is not None:
            records = sum(state.records_written + state.records_diverted for state in winners)
            steps += self._sink_steps(plan.dataset_urn, winners)
        sequence = SealedSequence(
            dataset_urn=plan.dataset_urn,
            epoch=self._settings.epoch,
            low=plan.planned_low,
            high=high,
            steps=() if self._settings.at_least_once else dump_steps(steps),
            start=plan.start.positions,
            skipped=(*plan.skipped, *(hole for state in winners for hole in state.holes)),
            records=records,
            files=files,
            left_out=plain_text(left_out, 500),
        )
        if not self._settings.job_level:
            self._made[_name(sequence)] = sequence, steps
        return sequence

    def _sink_steps(self, urn: str, winners: Sequence[TaskState]) -> list[CommitStep]:
        """The step that commits what writers of the user's own sink have prepared; none if they prepared nothing."""
        infos = tuple(info for state in winners for info in state.commit_infos)
        if self._context.sink is None or not infos:
            return []
        return [SinkCommitStep(self._context.sink, CommitRequest(urn, self._settings.epoch, infos))]

    def _seal(self, sequences: list[SealedSequence]) -> Work[Fold]:
        """Writes the sequences ahead, as one record; with at-least-once they are published, and closed by it. Those
        that somebody else sealed first are left to them."""
        mine = {_name(sequence): sequence for sequence in sequences}
        if not sequences:
            return self._log.refresh()
        settings = self._settings
        fold = yield from self._log.settling(
            partial(
                next_record.seal,
                epoch=settings.epoch,
                sequences=sequences,
                held=settings.job_level,
                published=settings.at_least_once,
            )
        )
        require_fence(fold, settings.epoch, self._log.folder)
        for name, sequence in mine.items():
            if fold.sequence(name) == sequence:
                self._sealed_here.add(name)
        return fold

    # -- executing and closing

    def _publish_unsealed(self, sequences: list[SealedSequence]) -> Work[Fold]:
        """At-least-once: executes steps that are nowhere written ahead, and lets the watermarks follow once the effects
        are durable. Should this process die in between, no record names its files, and their records are read again."""
        steps = {_name(sequence): self._made.pop(_name(sequence))[1] for sequence in sequences}
        outcomes: Outcomes[SequenceName] = yield Execution(steps)
        self._report.steps_executed += outcomes.executed.total()
        failed = dict(outcomes.failed)
        for name, lost in outcomes.lost.items():
            failed[name] = LostError(
                "a staged file was lost before it was published",
                dataset=name.dataset_urn,
                epoch=str(name.epoch),
                expected=lost.expected,
                found=lost.found,
                todo="nothing: no watermark has moved, and the next run reads its records again",
            )
        for name, error in failed.items():
            self._unpublished[name.dataset_urn] = error
            logger.warning(
                "not published yet: %s", error, extra={"dataset": printable(name.dataset_urn), "epoch": name.epoch}
            )
        published = [sequence for sequence in sequences if _name(sequence) not in failed]
        fold = yield from self._seal(published)
        done = [s for s in published if fold.state_of(s.dataset_urn).done_epoch == self._settings.epoch]
        self._report.datasets_committed += len(done)
        return fold

    def _execute_and_close(
        self, sequences: Sequence[SealedSequence], fold: Fold, *, verify_first: bool = False, last: bool = True
    ) -> Work[Fold]:
        """Executes and closes sequences.

        Args:
            sequences: what `fold` shows pending.
            fold: of the log.
            verify_first: for replay, in which a failure counts as this run's attempt.
            last: whether nobody in this run comes after this call: then the log is told what is left, and why.
        """
        if not sequences:
            return fold
        yield from self._log.making_durable()
        loaded: dict[SequenceName, list[CommitStep]] = {}
        failed: dict[SequenceName, DistcommitError] = {}
        for sequence in sequences:
            try:
                loaded[_name(sequence)] = self._steps_of(sequence)
            except DistcommitError as error:
                failed[_name(sequence)] = error
        outcomes: Outcomes[SequenceName] = yield Execution(loaded, verify_first=verify_first)
        self._report.steps_executed += outcomes.executed.total()
        failed.update(outcomes.failed)
        for name, lost in outcomes.lost.items():
            failed[name] = _lost_error(name, lost)
        done = [_name(sequence) for sequence in sequences if _name(sequence) not in failed]
        fold = yield from self._close(done)
        self._report.datasets_committed += len(done)
        if not failed:
            return fold
        return (yield from self._note_failures(failed, loaded, replaying=verify_first, last=last))

    def _steps_of(self, sequence: SealedSequence) -> list[CommitStep]:
        """The steps of a sequence that the fold shows; those it was made of here, if it is that very sequence."""
        made = self._made.pop(_name(sequence), None)
        if made is not None and made[0] == sequence:
            return made[1]
        return list(load_steps(sequence.steps, self._context))

    def _close(self, names: Sequence[SequenceName]) -> Work[Fold]:
        fold = yield from self._log.settling(partial(next_record.close, epoch=self._settings.epoch, names=names))
        require_fence(fold, self._settings.epoch, self._log.folder)
        return fold

    def _drop(self, names: Sequence[SequenceName]) -> Work[None]:
        fold = yield from self._log.settling(partial(next_record.drop, epoch=self._settings.epoch, names=names))
        require_fence(fold, self._settings.epoch, self._log.folder)
        self._report.sequences_dropped += len(names)

    def _note_failures(
        self,
        failed: dict[SequenceName, DistcommitError],
        loaded: dict[SequenceName, list[CommitStep]],
        *,
        replaying: bool,
        last: bool,
    ) -> Work[Fold]:
        """Reports what could not be finished, and tells the log. What is lost is quarantined at once. Else a failure in
        replay is this run's attempt, unless its target does not work, or this program's age or sink is to blame."""
        fold = self._log.refresh()  # what another committer has closed meanwhile had the better view
        open_still = {name: error for name, error in failed.items() if fold.sequence(name) is not None}
        failures = (
            (yield from judging(open_still, loaded, self._context, self._probe))
            if last
            else {name: judged(error) for name, error in open_still.items()}
        )
        left: dict[SequenceName, Failure] = {}
        for name, failure in failures.items():
            self._report.explain(name.dataset_urn, failure.kind, failure.reason)
            self._unfinished[name.dataset_urn] = failure
            self._report.sequences_left += 1
            if failure.lost or (replaying and not failure.outage and not failure.not_for_us):
                status = yield from noting_failed(
                    self._log, self._settings.epoch, name, failure, self._settings.max_attempts
                )
                if status is DatasetStatus.QUARANTINED:
                    self._report.datasets_quarantined += 1
                    ids = {"dataset": printable(name.dataset_urn), "epoch": name.epoch}
                    logger.error("dataset quarantined: %s", failure.reason, extra=ids)
            elif last:
                left[name] = failure
        if left:
            yield from noting_left(self._log, self._settings.epoch, left)
        return self._log.refresh()

    def _remove_probes(self) -> None:
        """Takes away what a committer left that died as it tried the output. Its sequence was pending then, so it is
        enough to look before such a sequence is taken over; a live one takes its probe's loss for an outage, and waits.
        """
        for root in (self._context.output_root, self._context.staging_root):
            try:
                for entry in self._fs.list_folder(root):
                    name = entry.name.removeprefix(TEMPORARY)
                    if name == self._probe or name.startswith(f"{self._probe}-"):
                        self._fs.delete(f"{root}/{entry.name}")
                self._fs.sync([root], root)  # also what was deleted as the output failed: its sync may have failed too
            except OSError as error:  # whoever takes the sequence over next tries again
                logger.warning("%s could not be listed: %s", root, error, extra={"bucket": self._bucket})

    # -- afterwards

    def _settle_open(self, fold: Fold) -> list[DatasetPlan]:
        """Takes datasets off the list of open ones that this run has published."""
        settled = [p for urn, p in self._open.items() if fold.state_of(urn).done_epoch >= self._settings.epoch]
        for plan in settled:
            del self._open[plan.dataset_urn]
            self._states.pop(plan.dataset_urn, None)
        return settled

    def _clean_up(self, plans: Sequence[DatasetPlan]) -> None:
        """Removes what attempts at these datasets left in task output; their sequences were read as DONE."""
        if not plans:
            return
        units = {unit.work_unit_id for plan in plans for unit in plan.work_units}
        try:
            attempts = list_attempts(self._fs, self._context.staging_root, self._settings.epoch, self._bucket)
            gone = [folder for unit, folders in attempts.items() if unit in units for folder in folders]
            self._report.files_swept += remove_attempts(self._fs, self._context.staging_root, gone)
        except OSError as error:  # the next run sweeps it
            logger.warning("task output could not be cleaned up: %s", error, extra={"bucket": self._bucket})


def _name(sequence: SealedSequence) -> SequenceName:
    return SequenceName(sequence.dataset_urn, sequence.epoch)


def _state_name(state: DatasetState) -> SequenceName | None:
    return _name(state.sequence) if state.sequence is not None else None


def _lost_error(name: SequenceName, lost: Verification) -> LostError:
    expected, found = (lost.expected, lost.found) if isinstance(lost, Lost) else ("", "")
    return LostError(
        "a sealed commit step is lost",
        dataset=name.dataset_urn,
        epoch=str(name.epoch),
        expected=expected,
        found=found,
        todo="restore what is named and release the dataset with retry, or accept or abandon it",
    )
