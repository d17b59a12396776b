"""The datasets of a bucket that this run has planned and not published yet, with what is known of attempts at them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.steps import StepContext
from distcommit.core.work import DatasetPlan, TaskState
from distcommit.engine.committing.sealing import has_outputs
from distcommit.engine.settings import RunSettings
from distcommit.protocol.fold import Fold
from distcommit.protocol.readiness import Nothing, Ready, Wait, readiness, succeeded
from distcommit.protocol.validity import may_seal
from distcommit.stores.folders.staging import StagedFiles
from distcommit.stores.state.task_states import TaskStateReader, TaskStateTables

logger = logging.getLogger(__name__)


class OpenDatasets:
    """Plans that are taken off as they are published, or as nothing will be of them.

    Args:
        settings: the run.
        bucket: the bucket.
        plans: what the run intends for the bucket's datasets.
        tables: shared with those of other buckets; own ones if there are none.

    Attributes:
        nothing: by dataset, why this run will commit nothing of it, and whether that is a failure.
    """

    def __init__(
        self, settings: RunSettings, bucket: int, plans: Iterable[DatasetPlan], tables: TaskStateTables | None
    ) -> None:
        self._settings, self._bucket = settings, bucket
        self._reader = TaskStateReader(tables or settings.task_states((bucket,)), bucket)
        self._plans = {plan.dataset_urn: plan for plan in plans}
        self._states: dict[str, list[TaskState]] = {}
        self._unreadable_states = ""
        self.nothing: dict[str, tuple[str, bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._plans)

    def know(self, name: str, states: Sequence[TaskState]) -> None:
        """Takes task states that this task has put under that file name; they need not be read back."""
        self._reader.know(name, states)

    def look(self) -> list[TaskState]:
        """Takes in the task states that were put since the last look, by anybody, and returns them.

        Raises:
            OSError: if they can't be read; the next look takes them up again.
        """
        states = self._new_states()
        for state in states:
            if state.dataset_urn in self._plans:
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

    def ready(
        self, fold: Fold, context: StepContext, *, ended: bool
    ) -> Iterator[tuple[DatasetPlan, Ready, StagedFiles]]:
        """Datasets that may be sealed and are ready, with what is staged of them; notes those of which there will be
        nothing.

        Args:
            fold: of the bucket's log.
            context: where the steps' effects go.
            ended: whether ingest has ended, so that what is missing counts as failed.
        """
        staged = StagedFiles(context.fs, context.staging_root)
        decided: list[DatasetPlan] = []
        for urn, plan in self._plans.items():
            if not may_seal(fold, self._settings.epoch, urn, plan.planned_low):
                continue  # sealed, or changed by hand
            if ended or succeeded(plan, self._states.get(urn, ())):
                decided.append(plan)
        staged.look(state for plan in decided for state in self._states.get(plan.dataset_urn, ()))
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
                case Nothing(reason, failed):
                    del self._plans[urn]
                    self._states.pop(urn, None)
                    self.nothing[urn] = (reason + self._unreadable_states if failed else reason, failed)
                case Ready(winners, high, left_out) if left_out:
                    yield plan, Ready(winners, high, left_out + self._unreadable_states), staged
                case Ready():
                    yield plan, answer, staged

    def settle(self, fold: Fold) -> list[DatasetPlan]:
        """Takes off the datasets that this run has published, and returns their plans."""
        settled = [p for urn, p in self._plans.items() if fold.state_of(urn).done_epoch >= self._settings.epoch]
        for plan in settled:
            del self._plans[plan.dataset_urn]
            self._states.pop(plan.dataset_urn, None)
        return settled
