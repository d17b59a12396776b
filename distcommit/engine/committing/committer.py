"""Commit work on one bucket: poll task states, seal, execute, close, clean up.

Any number of committers may work on one bucket at a time; the bucket's log orders them. What one of them leaves
half-way, another finishes: a twin, the drain, or the next run.

Committers of several buckets work in step (`core.support.io_batching`): segments of their logs, effects and what makes
them durable go together, so that the disk's barriers are as many for all of them as for one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from distcommit.core.errors import DistcommitError, LostError, printable
from distcommit.core.interfaces.steps import CommitStep
from distcommit.core.records.log_records import SealedSequence, SequenceName
from distcommit.core.support.io_batching import Work
from distcommit.core.work import DatasetPlan, TaskState
from distcommit.engine.committing.aborted_attempts import forget_winners
from distcommit.engine.committing.atomic_groups import execution_of
from distcommit.engine.committing.clean_up import RemoveProbes, remove_task_output
from distcommit.engine.committing.commit_failures import noting_failures
from distcommit.engine.committing.dataset_outcomes import Notes, Outcome, count_held, count_outcomes
from distcommit.engine.committing.open_datasets import OpenDatasets
from distcommit.engine.committing.sealing import name_of, sequence_of, step_context
from distcommit.engine.driver.counts import CommitCounts, DrainCounts
from distcommit.engine.driver.reports import Tally
from distcommit.engine.maintenance.replacing import with_replacements
from distcommit.engine.reading.read_failures import noting_unread
from distcommit.engine.reading.task_events import SequenceDone, SequenceSealed, TaskObserver
from distcommit.engine.settings import RunSettings
from distcommit.protocol import next_record
from distcommit.protocol.fold import Fold
from distcommit.steps.execution import Execution, Outcomes
from distcommit.steps.registry import load_steps
from distcommit.stores.logs.fencing import require_fence
from distcommit.stores.state.task_states import TaskStateTables

logger = logging.getLogger(__name__)
_RELEASE = "restore what is named and release the dataset with retry, or accept or abandon it"


class BucketCommitter:
    """The commit work on one bucket in one run.

    Args:
        settings: the run.
        bucket: the bucket.
        observer: who is told what is sealed, done and quarantined.
        plans: what the run intends for the bucket's datasets; empty when only older sequences are replayed.
        tables: task states, followed for all committers of a task.

    Attributes:
        tally: what it did, and why it could not finish what it could not.
        log: the bucket's.
    """

    def __init__(
        self,
        settings: RunSettings,
        bucket: int,
        observer: TaskObserver,
        plans: Iterable[DatasetPlan] = (),
        tables: TaskStateTables | None = None,
    ) -> None:
        self._settings, self._bucket = settings, bucket
        self.tally = Tally(CommitCounts(), observer)
        self._context = step_context(settings)
        self.log = settings.store.bucket_log(bucket, settings.epoch)
        self._open = OpenDatasets(settings, bucket, plans, tables)
        self._notes = Notes(self._open.nothing)
        self._sealed_here: set[SequenceName] = set()
        self._made: dict[SequenceName, tuple[SealedSequence, list[CommitStep]]] = {}

    def know(self, name: str, states: Sequence[TaskState]) -> None:
        """Takes task states that this task has put under that file name; they need not be read back."""
        self._open.know(name, states)

    def look(self) -> list[TaskState]:
        """Takes in the task states that were put since the last look, by anybody, and returns them.

        Raises:
            OSError: if they can't be read; the next look takes them up again.
        """
        return self._open.look()

    def commit_ready(self, *, ended: bool) -> Work[None]:
        """Seals what is complete, and executes, closes and cleans up what this committer sealed. With at-least-once,
        what is complete is published first, and sealed and closed by one record.

        Args:
            ended: whether ingest has ended, as read before this call. Then what is missing counts as failed, and
                sequences of this run that others sealed are taken over.

        Raises:
            FencedError: if a newer run has fenced the bucket; nothing more was sealed.
            DistcommitError, OSError: if the store can't be read or written; the next call takes it up again.
        """
        fold = self.log.refresh()
        require_fence(fold, self._settings.epoch, self.log.folder)
        self._clean_up(fold)  # what others have closed
        if not self._open:
            return
        self.look()
        ready = self._complete(fold, ended)
        if self._settings.at_least_once:
            self._clean_up((yield from self._publish_unsealed(ready)))
            return
        yield from self._seal(ready)
        if not self._settings.job_level:
            yield from self.publish(take_over=ended)

    def publish(self, *, take_over: bool) -> Work[None]:
        """Executes and closes pending sequences of this run: those sealed here, or all of them with `take_over`.

        To be called after `commit_ready`, by whose last look at the log it goes.
        """
        fold = self.log.latest()
        mine = [each.sequence for each in fold.pending() if each.sequence.epoch == self._settings.epoch]
        sequences = [each for each in mine if take_over or name_of(each) in self._sealed_here]
        if any(name_of(sequence) not in self._sealed_here for sequence in sequences):
            yield RemoveProbes(self._context, self._bucket)
        fold = yield from self._execute_and_close(sequences, fold, last=take_over)
        self._clean_up(fold)

    def replay(self, decided_epochs: frozenset[int]) -> Work[None]:
        """Finishes what older runs sealed: verifies every step, executes what is missing, closes.

        Held sequences that were never decided are dropped. LOST quarantines at once; another failure quarantines after
        `max_attempts` runs; an outage is nobody's attempt. What the run is not to replay stays as it is.
        """
        settings = self._settings  # what this run has sealed meanwhile is not this function's
        pending = [each for each in self.log.refresh().pending() if settings.replays(each.sequence)]
        undecided = [name_of(s.sequence) for s in pending if s.held and s.sequence.epoch not in decided_epochs]
        if undecided:
            yield from self._drop(undecided)
        todo = [each.sequence for each in pending if name_of(each.sequence) not in undecided]
        if pending:
            yield RemoveProbes(self._context, self._bucket)
        yield from self._execute_and_close(todo, self.log.refresh(), verify_first=True)

    def count_outcomes(self, plans: Iterable[DatasetPlan], tally: Tally[DrainCounts]) -> dict[str, Outcome]:
        """After the drain: adds to the tally what became of each dataset of the plan, and returns it."""
        return count_outcomes(self.log.latest(), self._settings.epoch, plans, self._notes, tally)

    def count_held(self, plans: Iterable[DatasetPlan], tally: Tally[DrainCounts]) -> dict[str, Outcome]:
        """Job-level, after the drain: adds to the tally what the driver's decision rests on, and returns it."""
        return count_held(self.log.latest(), self._settings.epoch, plans, self._notes, tally)

    def noting_unread(self, plans: Iterable[DatasetPlan], tally: Tally[DrainCounts]) -> Work[None]:
        """In the drain: tells the log which datasets of the plan this run could not read. Raises as `commit_ready`."""
        yield from noting_unread(self.log, self._settings, plans, self._notes.nothing, tally)

    # -- sealing

    def _complete(self, fold: Fold, ended: bool) -> list[SealedSequence]:
        """The sequences of datasets that are ready."""
        self._made.clear()
        sequences = []
        found = self._open.ready(fold, self._context, ended=ended)
        whole = with_replacements(self._settings, self._bucket, fold, found, self._notes.unpublished)
        for plan, ready, staged, replacement in whole:
            known = fold.state_of(plan.dataset_urn)
            sequence, steps = sequence_of(self._settings, self._context, known, plan, ready, staged, replacement)
            if not self._settings.job_level:
                self._made[name_of(sequence)] = sequence, steps
            sequences.append(sequence)
        return sequences

    def _seal(self, sequences: list[SealedSequence]) -> Work[Fold]:
        """Writes the sequences ahead, as one record; with at-least-once they are published, and closed by it. Those
        that somebody else sealed first are left to them."""
        mine = {name_of(sequence): sequence for sequence in sequences}
        if not sequences:
            return self.log.latest()
        settings = self._settings
        fold = yield from self.log.settling(
            partial(next_record.seal, epoch=settings.epoch, sequences=sequences, gate=settings.gate)
        )
        require_fence(fold, settings.epoch, self.log.folder)
        for name, sequence in mine.items():
            if fold.sequence(name) == sequence:
                self._sealed_here.add(name)
                now_ms = settings.clock.now_ms()
                self.tally.observe(
                    SequenceSealed(
                        name.dataset_urn, name.epoch, sequence.records, sequence.files, settings.job_level, now_ms
                    )
                )
        return fold

    # -- executing and closing

    def _publish_unsealed(self, sequences: list[SealedSequence]) -> Work[Fold]:
        """At-least-once: executes steps that are nowhere written ahead, and lets the watermarks follow once the effects
        are durable. Should this process die in between, no record names its files, and their records are read again."""
        steps = {name_of(sequence): self._made.pop(name_of(sequence))[1] for sequence in sequences}
        outcomes: Outcomes[SequenceName] = yield Execution(steps)
        self.tally.add(CommitCounts(steps_executed=outcomes.executed.total(), **outcomes.tried()))
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
            self._notes.unpublished[name.dataset_urn] = error
            logger.warning(
                "not published yet: %s", error, extra={"dataset": printable(name.dataset_urn), "epoch": name.epoch}
            )
        published = [sequence for sequence in sequences if name_of(sequence) not in failed]
        fold = yield from self._seal(published)
        done = [s for s in published if fold.state_of(s.dataset_urn).done_epoch == self._settings.epoch]
        self._count_done(done)
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
        yield from self.log.making_durable()
        loaded: dict[SequenceName, list[CommitStep]] = {}
        failed: dict[SequenceName, DistcommitError] = {}
        for sequence in sequences:
            try:
                loaded[name_of(sequence)] = self._steps_of(sequence)
            except DistcommitError as error:
                failed[name_of(sequence)] = error
        forget_winners(self._context, self._bucket, loaded)
        execution, held = execution_of(self._settings.store.groups, fold, loaded, verify_first=verify_first)
        outcomes: Outcomes[SequenceName] = yield execution
        self.tally.add(CommitCounts(steps_executed=outcomes.executed.total(), **outcomes.tried()))
        failed |= held | outcomes.failed | {name: _lost_error(name, lost) for name, lost in outcomes.lost.items()}
        done = [name_of(sequence) for sequence in sequences if name_of(sequence) not in failed]
        fold = yield from self._close(done)
        self._count_done([sequence for sequence in sequences if name_of(sequence) not in failed])
        if not failed:
            return fold
        self._notes.unfinished |= yield from noting_failures(
            self.log,
            self._settings,
            self._context,
            self._bucket,
            failed,
            loaded,
            self.tally,
            replaying=verify_first,
            last=last,
        )
        return self.log.refresh()

    def _count_done(self, sequences: Sequence[SealedSequence]) -> None:
        self.tally.add(CommitCounts(datasets_committed=len(sequences)))
        now_ms = self._settings.clock.now_ms()
        for done in sequences:
            self.tally.observe(SequenceDone(done.dataset_urn, done.epoch, done.records, done.files, now_ms))

    def _steps_of(self, sequence: SealedSequence) -> list[CommitStep]:
        """The steps of a sequence that the fold shows; those it was made of here, if it is that very sequence."""
        made = self._made.pop(name_of(sequence), None)
        if made is not None and made[0] == sequence:
            return made[1]
        return list(load_steps(sequence.steps, self._context))

    def _close(self, names: Sequence[SequenceName]) -> Work[Fold]:
        fold = yield from self.log.settling(partial(next_record.close, epoch=self._settings.epoch, names=names))
        require_fence(fold, self._settings.epoch, self.log.folder)
        return fold

    def _drop(self, names: Sequence[SequenceName]) -> Work[None]:
        fold = yield from self.log.settling(partial(next_record.drop, epoch=self._settings.epoch, names=names))
        require_fence(fold, self._settings.epoch, self.log.folder)
        self.tally.add(CommitCounts(sequences_dropped=len(names)))

    def _clean_up(self, fold: Fold) -> None:
        """Takes published datasets off the open ones, and what their attempts left away."""
        swept = remove_task_output(self._settings, self._bucket, self._open.settle(fold))
        self.tally.add(CommitCounts(files_swept=swept))


def _lost_error(name: SequenceName, lost: LostError) -> LostError:
    """Return the error of a run for a lost step. A remedy that says how to release the dataset stays."""
    is_named = "release the dataset" in lost.todo
    return LostError(
        lost.what,
        dataset=name.dataset_urn,
        epoch=str(name.epoch),
        expected=lost.expected,
        found=lost.found,
        todo=lost.todo if is_named else ("" if "To do: " in lost.found else _RELEASE),
    )
