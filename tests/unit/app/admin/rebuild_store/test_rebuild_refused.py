"""A rebuild that is refused reports the files that it has repaired before."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit import Job
from distcommit.app.admin import rebuild_job
from distcommit.app.admin.rebuild_result import RebuildResult
from distcommit.app.admin.rebuild_store import plan_rebuild, stored_states
from distcommit.protocol.paths.store import SETTINGS
from distcommit.stores.state.recorded_fixed_settings import record_settings
from tests.unit.app.admin.rebuild_store.rebuilding import rebuild
from tests.unit.app.serving.test_service import write
from tests.unit.engine.committing.test_changed_infos import WORLD, AnsweringSink, counting
from tests.unit.engine.driver.machines import NOTHING, Machine, source, states
from tests.unit.engine.driver.test_custom_sinks import run_with


def test_refused_rebuild_reports_the_damaged_files_that_it_has_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    job = Job.from_file(write(tmp_path / "jobs", "a"))
    store = job.open_store(create=True)
    record_settings(store, job._folders.fixed_settings())
    (recorded,) = Path(store.roots.store, SETTINGS).iterdir()
    recorded.write_bytes(b"torn")
    plan = RebuildResult(problems=["idle/x.parquet: torn"], problems_count=1)
    monkeypatch.setattr(rebuild_job, "plan_rebuild", lambda *_, **__: plan)
    result = job.rebuild()
    assert (result.written, result.problems, result.repaired) == (False, plan.problems, ["the record of settings"])


def test_commit_that_succeeded_in_part_must_be_finished_before_a_rebuild() -> None:
    machine = Machine()
    run_with(AnsweringSink(answer=counting), machine, source(a=1), WORLD)
    store = WORLD.store(machine)
    (problem,) = plan_rebuild(store, stored_states(store), accept_gaps=True).problems
    assert problem.startswith("a: epoch 2 may be committed in part; commit it with `distcommit recover`")
    assert run_with(AnsweringSink(), machine, NOTHING, WORLD).succeeded
    before = states(WORLD, machine)["a"].watermark
    assert rebuild(WORLD, machine).written
    assert states(WORLD, machine)["a"].watermark == before
