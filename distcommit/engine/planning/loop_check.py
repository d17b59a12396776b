"""Datasets whose sink writes to what the source reads: they are left out of the run before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from distcommit.core.errors import DistcommitError, SourceError
from distcommit.core.interfaces.source import DatasetProblem, PassedOver
from distcommit.core.records.fixed_settings import SourceFact
from distcommit.core.work import DatasetPlan
from distcommit.pipeline.task_flow import TaskFlow


@dataclass(slots=True)
class LoopCheck:
    """The check of planned datasets for loops.

    Systems are compared by the addresses in the settings, and by what the source has found its system to be: one Kafka
    cluster may have addresses that have nothing in common.

    Attributes:
        flow: the job's.
    """

    flow: TaskFlow
    _facts: list[SourceFact] = field(default_factory=list)
    _shared: dict[str, bool] = field(default_factory=dict)

    def learn(self, fact: SourceFact) -> None:
        """Take in what the source has found its system to be."""
        self._facts.append(fact)

    def checked(self, planned: DatasetPlan | DatasetProblem | PassedOver) -> DatasetPlan | DatasetProblem | PassedOver:
        """Return what is planned; of a dataset whose sink writes to what the source reads, the problem."""
        if not isinstance(planned, DatasetPlan):
            return planned
        urn = planned.dataset_urn
        try:
            target = self.flow.loop_of(urn) or self._loop_in_shared_systems(urn)
        except DistcommitError as error:
            return DatasetProblem(urn, str(error))
        if not target:
            return planned
        loop = SourceError(
            "the sink writes to what the source reads: each run would read what the last one wrote",
            dataset=urn,
            expected="a sink and a source that are apart",
            found=target,
            todo="leave it out of the source (such as source.exclude), or let the sink write elsewhere"
            + (f", or {self.flow.source.apart_hint}" if self.flow.source.apart_hint else ""),
        )
        return DatasetProblem(urn, str(loop))

    def _loop_in_shared_systems(self, urn: str) -> str:
        for branch in self.flow.branches:
            found = self.flow.loop_of(urn, branch=branch.name) if self._facts else ""
            if found and self._is_shared(branch.name):
                return found
        return ""

    def _is_shared(self, branch: str) -> bool:
        """Return whether a branch's sink writes to the source's system; asked once, and only where names are equal."""
        if branch not in self._shared:
            sink = self.flow.branch(branch).sink
            self._shared[branch] = any(sink.is_in_system(fact) for fact in self._facts)
        return self._shared[branch]
