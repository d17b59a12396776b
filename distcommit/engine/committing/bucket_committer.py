"""The committer of one bucket.

Several committers may work on a bucket at a time; the bucket's log decides which records are valid. If a committer
dies, another one, the drain or the next run completes its commits.

Committers batch segments, renames and syncs (`core.support.io_batching`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from distcommit.core.errors import DistcommitError, LostError, add_ids, named_by, printable
from distcommit.core.interfaces.commit_step import CommitStep
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.support.io_batching import BatchedWork
from distcommit.core.work_units import DatasetPlan, TaskState
from distcommit.engine.committing.abort_and_sweep_attempts import remove_winner_notes
from distcommit.engine.committing.atomic_groups import build_execution
from distcommit.engine.committing.build_commit_sequence import build_sequence, sequence_name
from distcommit.engine.committing.dataset_outcomes import DatasetNotes, count_held, count_outcomes
from distcommit.engine.committing.delete_probes_and_task_output import RemoveProbes, remove_task_output
from distcommit.engine.committing.poll_sealable_datasets import OpenDatasets
from distcommit.engine.committing.record_commit_failures import record_failures
from distcommit.engine.driver.task_reports import Tally
from distcommit.engine.reading.record_read_failures import record_read_failures
from distcommit.engine.run_events import Observer, SequenceDone, SequenceExecuted, SequenceSealed
from distcommit.engine.run_settings import RunSettings, step_context
from distcommit.pipeline.maintenance.replace_on_publish import stage_replacements
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.steps.step_execution import Execution, Outcomes
from distcommit.steps.step_registry import load_steps
from distcommit.stores.history.run_table import TableRow
from distcommit.stores.logs.fencing import require_fence
from distcommit.stores.logs.record_changed_steps import record_changed_steps
from distcommit.stores.state.task_states import TaskStateTables

logger = logging.getLogger(__name__)
_Built = tuple[SealedSequence, list[CommitStep]]
_RELEASE = "restore the missing data and release the dataset with retry, or accept or abandon it"


class BucketCommitter:
    """The committer of one bucket in one run.

    Args:
        observer: receives events of sealed, done and quarantined sequences.
        plans: plans of the bucket's datasets; empty if the committer only replays older sequences.
        tables: task states, shared by all committers of a task.

    Attributes:
        tally: counts of this committer, and reasons of its failures.
        log: log of the bucket.
    """

    def __init__(
        self,
        settings: RunSettings,
        bucket: int,
        observer: Observer,
        plans: Iterable[DatasetPlan] = (),
        tables: TaskStateTables | None = None,
    ) -> None:
        self._settings, self._bucket, self._context = settings, bucket, step_context(settings)
        self.tally = Tally(observer)
        self.log = settings.store.bucket_log(bucket, settings.epoch)
        self._open = OpenDatasets(settings, bucket, plans, tables)
        self._notes = DatasetNotes(self._open.not_committed)
        self._sealed_here: set[SequenceName] = set()
        self._built: dict[SequenceName, _Built] = {}

    def add_states(self, name: str, states: Sequence[TaskState]) -> None:
        """Add task states that this task wrote to the file `name`, which is then not read."""
        self._open.add_states(name, states)

    def poll_states(self) -> list[TaskState]:
        """Return new task states of any task; after OSError, the next call reads again."""
        return self._open.poll_states()

    def commit_ready(self, *, ended: bool) -> BatchedWork[None]:
        """Seal complete datasets, then execute, close and clean up these sequences.

        An all-or-none job only seals. With at-least-once, datasets are published first, then sealed and closed by one
        record.

        Args:
            ended: whether ingest had ended before. If so, missing attempts count as failed, and other processes'
                sequences of this run are taken over.

        Raises:
            FencedError: if a newer run has fenced the bucket. Nothing further was sealed.
            DistcommitError, OSError: if the store cannot be read or written. Calling again resumes.
        """
        fold = self.log.refresh()
        require_fence(fold, self._settings.epoch, self.log.folder)
        self._clean_up(fold)  # sequences that others have closed
        if not self._open:
            return
        self.poll_states()
        ready = self._ready_sequences(fold, ended)
        if self._settings.at_least_once:
            self._clean_up((yield from self._publish_unsealed(ready)))
            return
        yield from self._seal(ready)
        if not self._settings.job_level:
            yield from self.publish(take_over=ended)

    def publish(self, *, take_over: bool) -> BatchedWork[None]:
        """Execute and close this run's pending sequences: those that this committer sealed, or all with `take_over`."""
        fold = self.log.latest()
        own = [item.sequence for item in fold.pending() if item.sequence.epoch == self._settings.epoch]
        sequences = [item for item in own if take_over or sequence_name(item) in self._sealed_here]
        if any(sequence_name(sequence) not in self._sealed_here for sequence in sequences):
            yield RemoveProbes(self._context, self._bucket)
        fold = yield from self._execute_and_close(sequences, fold, last=take_over)
        self._clean_up(fold)

    def replay(self, decided_epochs: frozenset[int]) -> BatchedWork[None]:
        """Finish older runs' sequences: verify every step, execute the missing ones, close.

        A held sequence is dropped unless its run decided to publish. A lost step quarantines its dataset at once, other
        failures after `max_attempts` runs. An outage does not count.
        """
        settings = self._settings
        pending = [opened for opened in self.log.refresh().pending() if settings.replays(opened.sequence)]
        undecided = [sequence_name(s.sequence) for s in pending if s.held and s.sequence.epoch not in decided_epochs]
        if undecided:
            yield from self._drop(undecided)
        to_execute = [opened.sequence for opened in pending if sequence_name(opened.sequence) not in undecided]
        if pending:
            yield RemoveProbes(self._context, self._bucket)
        yield from self._execute_and_close(to_execute, self.log.refresh(), verify_first=True)

    def count_outcomes(self, plans: Iterable[DatasetPlan], tally: Tally) -> list[TableRow]:
        return count_outcomes(self.log.latest(), self._settings.epoch, self._bucket, plans, self._notes, tally)

    def count_held(self, plans: Iterable[DatasetPlan], tally: Tally) -> list[TableRow]:
        return count_held(self.log.latest(), self._settings.epoch, self._bucket, plans, self._notes, tally)

    def record_read_failures(self, plans: Iterable[DatasetPlan], tally: Tally) -> BatchedWork[None]:
        """Record planned datasets that this run failed to read, for the drain. Raises FencedError if a newer run has
        fenced the bucket, and DistcommitError or OSError if the log cannot be read."""
        yield from record_read_failures(self.log, self._settings, plans, self._notes.not_committed, tally)

    # -- sealing

    def _ready_sequences(self, fold: Fold, ended: bool) -> list[SealedSequence]:
        self._built.clear()
        sequences, results = list[SealedSequence](), self._open.ready(fold, self._context, ended=ended)
        complete = stage_replacements(self._settings, self._bucket, fold, results, self._notes.unpublished)
        for plan, ready, staged, replacement in complete:
            state = fold.state_of(plan.dataset_urn)
            with named_by(dataset=plan.dataset_urn):
                sequence, steps = build_sequence(
                    self._settings, self._context, state, plan, ready, staged, replacement, self._open.states_of(plan)
                )
            if not self._settings.job_level:
                self._built[sequence_name(sequence)] = sequence, steps
            sequences.append(sequence)
        return sequences

    def _seal(self, sequences: list[SealedSequence]) -> BatchedWork[Fold]:
        """Write the sequences into the log as one record. With at-least-once, it also closes them.

        A sequence that another committer has sealed before is left to it.
        """
        own = {sequence_name(sequence): sequence for sequence in sequences}
        if not sequences:
            return self.log.latest()
        settings = self._settings
        fold = yield from self.log.settle(
            partial(next_log_record.seal, epoch=settings.epoch, sequences=sequences, gate=settings.gate)
        )
        require_fence(fold, settings.epoch, self.log.folder)
        for name, sequence in own.items():
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

    def _publish_unsealed(self, sequences: list[SealedSequence]) -> BatchedWork[Fold]:
        """Execute steps, make their effects durable, then move watermarks (at-least-once).

        After a crash in between, records are published twice.
        """
        steps = {sequence_name(sequence): self._built.pop(sequence_name(sequence))[1] for sequence in sequences}
        outcomes: Outcomes[SequenceName] = yield Execution(steps)
        _count_executed(outcomes, self.tally)
        failed = outcomes.failed | {
            name: _lost_unsealed_error(lost_error) for name, lost_error in outcomes.lost.items()
        }
        for name, error in failed.items():
            add_ids(error, dataset=name.dataset_urn, epoch=name.epoch, bucket=self._bucket)
            self._notes.unpublished[name.dataset_urn] = error
            logger.warning(
                "not published yet: %s", error, extra={"dataset": printable(name.dataset_urn), "epoch": name.epoch}
            )
        published = [sequence for sequence in sequences if sequence_name(sequence) not in failed]
        fold = yield from self._seal(published)
        done = [s for s in published if fold.state_of(s.dataset_urn).done_epoch == self._settings.epoch]
        self._count_done(done)
        return fold

    def _execute_and_close(
        self, sequences: Sequence[SealedSequence], fold: Fold, *, verify_first: bool = False, last: bool = True
    ) -> BatchedWork[Fold]:
        """Execute and close pending sequences of `fold`.

        Args:
            verify_first: whether the sequences are replayed, so that failures count.
            last: whether this run does not try them again, so that failures are recorded.
        """
        if not sequences:
            return fold
        yield from self.log.make_durable()
        loaded: dict[SequenceName, list[CommitStep]] = {}
        failed: dict[SequenceName, DistcommitError] = {}
        for sequence in sequences:
            try:
                loaded[sequence_name(sequence)] = self._steps_of(sequence)
            except DistcommitError as error:
                failed[sequence_name(sequence)] = error
        remove_winner_notes(self._context, self._bucket, loaded)
        execution, held_back = build_execution(self._settings.store.groups, fold, loaded, verify_first=verify_first)
        outcomes: Outcomes[SequenceName] = yield execution
        _count_executed(outcomes, self.tally)
        failed |= held_back | outcomes.failed | {name: _lost_error(lost) for name, lost in outcomes.lost.items()}
        done = [sequence_name(sequence) for sequence in sequences if sequence_name(sequence) not in failed]
        fold = yield from self._close(done)
        self._count_done([sequence for sequence in sequences if sequence_name(sequence) not in failed])
        if not failed:
            return fold
        executed = {sequence_name(sequence): sequence for sequence in sequences}
        progressed = yield from record_changed_steps(self.log, self._settings.epoch, executed, loaded, failed)
        self._notes.unfinished |= yield from record_failures(
            self.log,
            self._settings,
            self._context,
            self._bucket,
            failed,
            loaded,
            self.tally,
            replaying=verify_first,
            last=last,
            progressed=progressed,
        )
        return self.log.refresh()

    def _count_done(self, sequences: Sequence[SealedSequence]) -> None:
        self.tally.add(RunCounts(datasets_committed=len(sequences)))
        now_ms = self._settings.clock.now_ms()
        for done in sequences:
            self.tally.observe(SequenceDone(done.dataset_urn, done.epoch, done.records, done.files, now_ms))

    def _steps_of(self, sequence: SealedSequence) -> list[CommitStep]:
        built = self._built.pop(sequence_name(sequence), None)
        if built is not None and built[0] == sequence:
            return built[1]
        return list(load_steps(sequence.steps, self._context))

    def _close(self, names: Sequence[SequenceName]) -> BatchedWork[Fold]:
        fold = yield from self.log.settle(partial(next_log_record.close, epoch=self._settings.epoch, names=names))
        require_fence(fold, self._settings.epoch, self.log.folder)
        return fold

    def _drop(self, names: Sequence[SequenceName]) -> BatchedWork[None]:
        fold = yield from self.log.settle(partial(next_log_record.drop, epoch=self._settings.epoch, names=names))
        require_fence(fold, self._settings.epoch, self.log.folder)
        self.tally.add(RunCounts(sequences_dropped=len(names)))

    def _clean_up(self, fold: Fold) -> None:
        swept = remove_task_output(self._settings, self._bucket, self._open.settle(fold))
        self.tally.add(RunCounts(files_swept=swept))


def _count_executed(outcomes: Outcomes[SequenceName], tally: Tally) -> None:
    flow = outcomes.flow()
    tally.add(replace(RunCounts(steps_executed=outcomes.executed.total(), flow=flow), **flow.commit_totals))
    for name, counts in outcomes.counts.items():
        tally.observe(SequenceExecuted(name.dataset_urn, name.epoch, replace(RunCounts(), **counts.commit_totals)))


def _lost_error(error: LostError) -> LostError:
    """Add the release command to the error of a lost step, unless its remedy names it."""
    is_named = "release the dataset" in error.todo
    todo = error.todo if is_named else ("" if "To do: " in error.found else _RELEASE)
    return LostError(error.failure, id=error.id, expected=error.expected, found=error.found, todo=todo, **error.ids)


def _lost_unsealed_error(error: LostError) -> LostError:
    todo = "nothing: no watermark has moved, and the next run reads the records again"
    subject = "a staged file was lost before it was published"
    return LostError(subject, id="STAGED_FILE_LOST", expected=error.expected, found=error.found, todo=todo, **error.ids)
