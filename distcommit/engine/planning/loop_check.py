"""Detection of datasets whose sink writes to their own source, before any write."""

from __future__ import annotations

from dataclasses import dataclass, field

from distcommit.core.errors import DistcommitError, SourceError
from distcommit.core.interfaces.source import DatasetProblem, SkippedDataset
from distcommit.core.records.fixed_settings import SourceFact
from distcommit.core.work_units import DatasetPlan
from distcommit.pipeline.task_flow import TaskFlow


@dataclass(slots=True)
class LoopCheck:
    """Check of planned datasets for loops.

    Source and sink use the same system if their settings have an address in common, or if a fact that the source
    reports of its system, such as a cluster's id, is also true for the sink's. Facts are needed because two lists of a
    cluster's brokers may have no address in common.

    Attributes:
        flow: source, converters, checkers, fork and sinks of the job.
    """

    flow: TaskFlow
    _facts: list[SourceFact] = field(default_factory=list)
    _shared: dict[str, bool] = field(default_factory=dict)

    def add_fact(self, fact: SourceFact) -> None:
        self._facts.append(fact)

    def check(
        self, planned: DatasetPlan | DatasetProblem | SkippedDataset
    ) -> DatasetPlan | DatasetProblem | SkippedDataset:
        """Return the plan, or a problem if the sink writes to the source or the comparison fails."""
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
            "the sink writes to what the source reads: each run would read what the previous one wrote",
            id="SINK_FEEDS_SOURCE",
            dataset=urn,
            expected="a target that the source does not read",
            found=target,
            todo="exclude it from the source (such as source.exclude), or let the sink write elsewhere"
            + (f", or {self.flow.source.false_match_hint}" if self.flow.source.false_match_hint else ""),
        )
        return DatasetProblem(urn, str(loop))

    def _loop_in_shared_systems(self, urn: str) -> str:
        for branch in self.flow.branches:
            target = self.flow.loop_of(urn, branch=branch.name) if self._facts else ""
            if target and self._is_shared(branch.name):
                return target
        return ""

    def _is_shared(self, branch: str) -> bool:
        if branch not in self._shared:
            sink = self.flow.branch(branch).sink
            self._shared[branch] = any(sink.is_in_system(fact) for fact in self._facts)
        return self._shared[branch]
