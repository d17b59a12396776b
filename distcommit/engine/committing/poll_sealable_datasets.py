"""Polling of task states for datasets that may be sealed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.work_units import DatasetPlan, TaskState
from distcommit.engine.committing.build_commit_sequence import has_outputs
from distcommit.engine.committing.dataset_outcomes import NotCommitted
from distcommit.engine.committing.work_unit_results import build_previous_run
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.log_state import Fold
from distcommit.protocol.record_validity import may_seal
from distcommit.protocol.seal_decision import NotReady, Ready, Wait, readiness, succeeded
from distcommit.stores.folders.staging import StagedFiles
from distcommit.stores.state.task_states import TaskStateReader, TaskStateTables

logger = logging.getLogger(__name__)


class OpenDatasets:
    """The plans of a bucket that this run has neither published nor given up.

    Args:
        tables: task states, shared by a task; None to read them here.

    Attributes:
        not_committed: why nothing is committed, by dataset.
    """

    def __init__(
        self, settings: RunSettings, bucket: int, plans: Iterable[DatasetPlan], tables: TaskStateTables | None
    ) -> None:
        self._settings, self._bucket = settings, bucket
        self._reader = TaskStateReader(tables or settings.task_states((bucket,)), bucket)
        self._plans = {plan.dataset_urn: plan for plan in plans}
        self._states: dict[str, list[TaskState]] = {}
        self._unreadable_states = ""
        self.not_committed: dict[str, NotCommitted] = {}

    def __bool__(self) -> bool:
        return bool(self._plans)

    def add_states(self, name: str, states: Sequence[TaskState]) -> None:
        self._reader.add_states(name, states)

    def poll_states(self) -> list[TaskState]:
        states = self._new_states()
        for state in states:
            if state.dataset_urn in self._plans:
                self._states.setdefault(state.dataset_urn, []).append(state)
        return states

    def _new_states(self) -> list[TaskState]:
        """Return new task states; a corrupt file's work units count as unfinished."""
        try:
            return self._reader.poll()
        except CorruptError as error:
            logger.warning("task states are lost: %s", error, extra={"bucket": self._bucket})
            self._unreadable_states = f"; {error}"
            return self._reader.poll()

    def states_of(self, plan: DatasetPlan) -> Sequence[TaskState]:
        return self._states.get(plan.dataset_urn, ())

    def ready(
        self, fold: Fold, context: StepContext, *, ended: bool
    ) -> Iterator[tuple[DatasetPlan, Ready, StagedFiles]]:
        """Yield sealable datasets with their staged files, and move datasets that can't be sealed to `not_committed`.

        Args:
            ended: whether missing attempts count as failed.
        """
        staged = StagedFiles(context.fs, context.staging_root)
        decided: list[DatasetPlan] = []
        for urn, plan in self._plans.items():
            if not may_seal(fold, self._settings.epoch, urn, plan.planned_low):
                continue  # sealed already, or its watermark was changed by an operator
            if ended or succeeded(plan, self._states.get(urn, ())):
                decided.append(plan)
        staged.list_folders_of(state for plan in decided for state in self._states.get(plan.dataset_urn, ()))
        for plan in decided:
            urn = plan.dataset_urn
            answer = readiness(
                plan,
                self._states.get(urn, ()),
                policy=self._settings.policy_of(urn),
                ingest_ended=ended,
                staged=lambda state: has_outputs(self._settings, context, staged, state),
            )
            match answer:
                case Wait():
                    continue
                case NotReady(reason, failed):
                    del self._plans[urn]
                    states = self._states.pop(urn, [])
                    run = build_previous_run(self._settings.epoch, plan, states) if failed else None
                    text = reason + self._unreadable_states if failed else reason
                    self.not_committed[urn] = NotCommitted(text, failed, run)
                case Ready(winners, high, left_out) if left_out:
                    yield plan, Ready(winners, high, left_out + self._unreadable_states), staged
                case Ready():
                    yield plan, answer, staged

    def settle(self, fold: Fold) -> list[DatasetPlan]:
        done = [p for urn, p in self._plans.items() if fold.state_of(urn).done_epoch >= self._settings.epoch]
        for plan in done:
            del self._plans[plan.dataset_urn]
            self._states.pop(plan.dataset_urn, None)
        return done
