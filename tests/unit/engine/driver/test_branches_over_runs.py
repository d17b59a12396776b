"""Two branches of a dataset in one target over several runs, of which one branch has no records in one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.forks.by_schema import AllBranches
from distcommit.core.interfaces.committer import CommitRequest, Committed
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import run
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, launch, source, states
from tests.unit.engine.driver.test_custom_sinks import MemorySink

WORLD = World()


@dataclass(frozen=True, slots=True)
class WithoutSomeRecords(Converter):
    """A converter that drops the records of the second and the third run."""

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        condition = pc.invert(pc.is_in(batch["value"], pa.array(["a/0/1", "a/0/2"])))
        yield Converted(batch.filter(condition), pc.indices_nonzero(condition))


def test_branch_without_records_in_a_run_is_next_committed_upon_its_own_newest_epoch() -> None:
    machine, asked = Machine(), list[CommitRequest]()

    def committed(request: CommitRequest) -> Committed:
        asked.append(request)
        return Committed()

    sink = MemorySink(answers=committed)
    branches = (Branch(sink, "main"), Branch(sink, "other", stages=(Stage("drop", WithoutSomeRecords()),)))
    epochs = list[int]()
    for end in (1, 2, 3, 4):
        settings = WORLD.begin(machine, source(a=end))
        flow = TaskFlow(settings.flow.source, branches, fork=AllBranches())
        assert run(launch, replace(settings, flow=flow)).succeeded
        epochs.append(settings.epoch)
    first, second, third, fourth = epochs
    bases_by_branch = {
        (commit_request.branch, commit_request.epoch): commit_request.bases
        for commit_request in asked
        if commit_request.infos
    }
    assert bases_by_branch == {
        **{("main", first): (0,), ("main", second): (first,), ("main", third): (second,), ("main", fourth): (third,)},
        **{("other", first): (0,), ("other", fourth): (first,)},
    }
    assert states(WORLD, machine)["a"].targets == {"main": (fourth,), "other": (fourth,)}
