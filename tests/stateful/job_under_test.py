"""The real job on a simulated machine, beside its model: applies events to both and compares them after each."""

from __future__ import annotations

import copy
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, assert_never

from distcommit.core.commit_groups import bucket_of
from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import ConflictError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.watermark import Watermark
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.reading.task_plan import ingest_tasks
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.run_plans import read_manifest
from distcommit.testing.fakes.faulty_calls import Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.histories import Crash, Event, Grow, Lose, Overtaken, Released, Restore, Run, Set, Zombie
from tests.models.job_model import JobModel
from tests.simulation.world import ROOTS, launch_here, left_in_staging
from tests.stateful.disturbed_runs import TASK_ATTEMPTS, JobOnMachine, Published, begin, launch_twice
from tests.stateful.profiles import known_ids
from tests.stateful.repeating_source import RepeatingSource


@dataclass(frozen=True)
class Stolen:
    """A staged file of a sequence, which a foreign process removed."""

    dataset_urn: str
    epoch: int
    path: str
    data: bytes


class JobUnderTest(JobOnMachine):
    """A job with its history so far."""

    def __init__(self, buckets: int = 2) -> None:
        super().__init__(buckets)
        self.model = JobModel()
        self.content: dict[str, dict[str, int]] = {}
        self.stolen: list[Stolen] = []
        self._robbed: set[tuple[str, int]] = set()
        self._held: set[int] = set()
        self._published = Published()
        self._runs = 0
        self._ids = random.Random(1)
        self.store()
        self.machine.syncfs("/")

    def apply(self, event: Event) -> None:
        """Apply an event and check all invariants."""
        with known_ids(self._ids):
            match event:
                case Grow(urn, partition, records):
                    there = self.content.setdefault(urn, {})
                    there[partition] = there.get(partition, 0) + records
                case Run():
                    self._run(event)
                case Overtaken():
                    self._overtaken(event)
                case Zombie():
                    self._zombie(event)
                case Lose(urn):
                    self._lose(urn)
                case Restore():
                    self._restore()
                case Released():
                    self._release(event)
                case Set(urn, tenths):
                    self._set(urn, tenths)
                case _:
                    assert_never(event)
            self.check()

    def finish(self) -> None:
        """Repair everything, then run once without disturbance and check that everything is exact."""
        self.apply(Restore())
        for urn, state in self.states().items():
            if state.status.value in ("quarantined", "revoking"):
                self.apply(Released(urn, "retry" if state.status.value == "quarantined" else "abandon"))
        with known_ids(self._ids):
            result = self._run(Run())
        self.check()
        assert result is not None
        assert result.succeeded, result
        reached = {
            urn: dataset.watermark for urn, dataset in self.model.datasets.items() if dataset.watermark is not None
        }
        assert reached == self.content
        assert left_in_staging(self.machine) == []

    # -- invariants

    def check(self) -> None:
        """Check all invariants."""
        states = self.states()
        counters = self._published.records(self.machine, self.store(), self._held - self._decided)
        for urn in {**states, **self.model.datasets, **counters}:
            dataset, state = self.model.of(urn), states.get(urn) or DatasetState(urn)
            expected = (dataset.status, dataset.watermark, dataset.high)
            assert expected == (state.status.value, _plain(state.watermark), _high(state)), (urn, dataset, state)
            wrong = dataset.mismatch(counters.get(urn, Counter()))
            assert not wrong, (urn, wrong, dataset, state)
            if state.sequence is not None and state.status.value != "revoking":
                self._nothing_needed_is_gone(state.sequence)
                robbed = (urn, state.sequence.epoch) in self._robbed
                assert state.status.value != "quarantined" or robbed or len(state.tried_epochs) >= 3, state

    def _nothing_needed_is_gone(self, sequence: SealedSequence) -> None:
        stolen, fs = {file.path for file in self.stolen}, self.store().fs
        for step in self._steps(sequence):
            status = fs.status(step.source) or fs.status(step.target)
            assert step.source in stolen or (status and status.size_bytes == step.file.size_bytes), f"gone: {step}"

    # -- runs

    def _source(self, event: Run) -> RepeatingSource:
        return RepeatingSource(
            {
                urn: ModelDataset(
                    dict(partitions),
                    event.units,
                    frozenset(p for p in partitions if (urn, p) in event.fails),
                    event.short,
                    {p: end // 2 for p, end in partitions.items() if (urn, p) in event.stumbles},
                )
                for urn, partitions in self.content.items()
                if urn not in event.hidden
            },
            repeats=event.repeats,
        )

    def _expected_source(self, event: Run) -> ModelSource:
        """Return the source that the run sees in the end: records that no attempt could read have failed."""
        source = self._source(event)
        if event.repeats < TASK_ATTEMPTS * (1 + event.twins):
            return source
        return ModelSource({u: replace(d, fails=frozenset(d.partitions)) for u, d in source.datasets.items()})

    def _go(self, event: Run) -> RunResult:
        self._runs += 1
        settings = begin(self.store(), self._source(event), event, self._runs)
        self._past.append(settings)
        if event.job_level:
            self._held.add(settings.epoch)
        result = run(launch_twice if event.twins else launch_here, settings)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
        return result

    def _run(self, event: Run) -> RunResult | None:
        blocked = f"{ROOTS.output}/{folder_of(event.blocked)}/" if event.blocked else ""
        result = None
        with self._gated(event.crash, blocked) as died:
            result = self._go(event)
        if died():
            self._restart(event.crash)
            self._adopt()
            return None
        if event.blocked and event.job_level:  # a held sequence decides about all of them
            self._adopt()
            return result
        before = copy.deepcopy(self.model.of(event.blocked)) if event.blocked else None
        self.model.run(self._expected_source(event), event.policy, job_level=event.job_level)
        if before is not None:
            self.model.datasets[event.blocked] = before
            self._adopt(event.blocked)
        return result

    def _overtaken(self, event: Overtaken) -> None:
        remaining, between = event.nth, 0

        def gate(operation: Operation) -> None:
            nonlocal remaining, between
            remaining -= 1
            if remaining == 0:
                self.machine.gate = None
                self._adopt()
                self._run(event.by)
                self.check()
                between = self._past[-1].epoch
                self.machine.gate = gate

        self.machine.gate = gate
        try:
            with suppress(ConflictError):
                result = self._go(event.run)
                if result.epoch > between:
                    self.model.run(self._expected_source(event.run), event.run.policy, job_level=event.run.job_level)
        finally:
            self.machine.gate = None

    def _zombie(self, event: Zombie) -> None:
        if len(self._past) < event.back:
            return
        past = self._past[-event.back]
        source = ModelSource({u: ModelDataset(dict(p), short=event.short) for u, p in self.content.items()})
        settings = replace(past, store=self.store(), flow=replace(past.flow, source=source))
        before, store = self.states(), self.store()
        with suppress(FileNotFoundError):  # its plan was never published, or is forgotten
            manifest = read_manifest(store.fs, ROOTS.store, settings.run_id)
            for task in range(ingest_tasks(settings, manifest)):
                ingest_partition(settings, task)
            for partition in range(settings.partitions if event.drains else 0):
                drain_partition(settings, partition)
        for urn, state in self.states().items():
            if store.bucket_log(bucket_of(urn, store.buckets)).refresh().fence_epoch > past.epoch:
                assert state == before.get(urn), f"a zombie moved {urn}"
        self._adopt()

    def _adopt(self, *urns: str) -> None:
        """Take over the results of a disturbance, if that is possible at all."""
        states = self.states()
        for urn in urns or {**self.model.datasets, **states}:
            state = states.get(urn) or DatasetState(urn)
            wrong = self.model.adopt(state, self.content.get(urn, {}), self._decided)
            assert not wrong, wrong
            epoch = state.sequence.epoch if state.sequence else 0
            self.model.of(urn).lost = any((s.dataset_urn, s.epoch) == (urn, epoch) for s in self.stolen)

    # -- operators

    def _lose(self, urn: str) -> None:
        state = self.states().get(urn)
        if state is None or state.sequence is None or state.status.value not in ("pending", "quarantined"):
            return
        for step in self._steps(state.sequence):
            if self.store().fs.status(step.source) is not None:
                self.stolen.append(Stolen(urn, state.sequence.epoch, step.source, self.machine.read_file(step.source)))
                self._robbed.add((urn, state.sequence.epoch))
                self.machine.unlink(step.source)
                self.machine.syncfs("/")
                self.model.of(urn).lost = True
                return

    def _restore(self) -> None:
        states = self.states()
        for file in self.stolen:
            state = states.get(file.dataset_urn)
            if state is None or state.sequence is None or state.sequence.epoch != file.epoch:
                continue
            if state.status.value == "revoking":
                continue
            fd = self.machine.open_new(file.path)
            self.machine.write(fd, file.data)
            self.machine.close(fd)
            self.model.of(file.dataset_urn).lost = False
        self.machine.syncfs("/")
        self.stolen.clear()

    def _release(self, event: Released) -> None:
        urn, state = event.dataset_urn, self.states().get(event.dataset_urn)
        if state is None or state.status.value not in ("quarantined", "revoking"):
            return
        crash = Crash(event.dies_before) if event.dies_before else None
        refused = state.status.value == "revoking" and event.how == "retry"
        with self._gated(crash) as died:
            try:
                operator_actions.release(self.store(), urn, operator_actions.Release(event.how), "person")
                assert not refused
            except ConflictError:
                assert refused
        if died():
            self.machine = self.machine.after_kill()
        after = self.states()[urn].status.value
        if not refused and after not in (state.status.value, "revoking"):
            self.model.release(urn, event.how)
        self.model.of(urn).status = after

    def _set(self, urn: str, tenths: int | None) -> None:
        state = self.states().get(urn) or DatasetState(urn)
        if urn not in self.content or state.status.value != "idle":
            return
        place = None if tenths is None else {p: end * tenths // 10 for p, end in self.content[urn].items()}
        with self._gated(None):
            operator_actions.set_watermark(
                self.store(), urn, None if place is None else Watermark(dict(place)), "person"
            )
        self.model.of(urn).forget(place)


def _plain(watermark: Watermark | None) -> dict[str, Any] | None:
    return None if watermark is None else dict(watermark.positions)


def _high(state: DatasetState) -> dict[str, Any] | None:
    return _plain(state.sequence.high) if state.sequence is not None else None
