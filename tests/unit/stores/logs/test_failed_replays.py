"""The commit step store counts failed replays like a job's runs, and skips a dataset after the limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from distcommit.core.errors import ConflictError, DistcommitError, FencedError, LostError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.watermark import Watermark
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.steps.step_registry import register
from distcommit.steps.watermark_step import HighWatermarkCommitStep
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.stores.state.job_store import Roots, open_store

LIMIT = 3


@register
class GateCommitStep(CommitStep):
    """A step that fails until a file opens the gate."""

    type_name: ClassVar[str] = "test-gate"

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def verify(self) -> bool:
        return (self.folder / "done").exists()

    def execute(self) -> bool:
        if (self.folder / "open").exists():
            (self.folder / "done").touch()
        return self.verify()

    def to_row(self) -> list[Any]:
        return [str(self.folder)]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls(*row)


@register
class LostCommitStep(CommitStep):
    """A step whose effect is lost."""

    type_name: ClassVar[str] = "test-lost"

    def __init__(self, path: str) -> None:
        self.path = path

    def verify(self) -> bool:
        return False

    def execute(self) -> None:
        raise LostError("the file is gone", expected="a file", found="nothing", dataset="another", path=self.path)

    def to_row(self) -> list[Any]:
        return [self.path]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls(*row)


@pytest.fixture
def context(tmp_path: Path) -> StepContext:
    return StepContext(LocalFileSystem(durable=False), f"{tmp_path}/staging", f"{tmp_path}/output")


def process(context: StepContext, tmp_path: Path) -> LogCommitStepStore:
    """Open the store as a new process, which fences the previous one."""
    store = LogCommitStepStore(context.fs, f"{tmp_path}/stores", context, max_attempts=LIMIT)
    store.create("job")
    return store


def state(context: StepContext, tmp_path: Path) -> DatasetState:
    roots = Roots(f"{tmp_path}/stores/job", context.staging_root, context.output_root)
    store = open_store(context.fs, roots, "job", create=False)
    return store.bucket_log(store.bucket_of("d")).refresh().state_of("d")


def attempted(store: LogCommitStepStore) -> str:
    """Commit the sequence again; return the result, the error or `skipped`."""
    sequence = store.get_commit_sequence("job", "d")
    if sequence is None:
        return "skipped"
    try:
        return f"returned {sequence.commit()}"
    except DistcommitError as error:
        return str(error)


def sealed(context: StepContext, tmp_path: Path) -> LogCommitStepStore:
    store = process(context, tmp_path)
    store.put("job", "d", GateCommitStep(str(tmp_path)))
    store.put("job", "d", HighWatermarkCommitStep("d", None, Watermark({"": 5})))
    store.seal("job", "d")
    return store


def test_process_that_sealed_a_sequence_may_retry_it_without_limit(context: StepContext, tmp_path: Path) -> None:
    store = sealed(context, tmp_path)
    for _ in range(LIMIT + 2):
        assert "it returned False" in attempted(store)
    assert state(context, tmp_path).tried_epochs == ()
    (tmp_path / "open").touch()
    assert attempted(store) == "returned True"


def test_failed_replays_of_as_many_processes_as_the_limit_quarantine_the_dataset(
    context: StepContext, tmp_path: Path
) -> None:
    sealed(context, tmp_path)
    for number in range(1, LIMIT + 1):
        store = process(context, tmp_path)
        for _ in range(2):  # attempts count processes, not commits
            if number < LIMIT:
                assert "it returned False" in attempted(store)
        if number == LIMIT:
            assert f"quarantined after {LIMIT} failed replays" in attempted(store)
        assert len(state(context, tmp_path).tried_epochs) == number
    after = process(context, tmp_path)
    assert attempted(after) == "skipped"
    assert after.exists("job", "d")
    assert after.watermark("job", "d") is None
    with pytest.raises(ConflictError, match=r"release\('job', 'd', how\)"):
        after.put("job", "d", GateCommitStep(str(tmp_path)))


@pytest.mark.parametrize("how", ["retry", "accept"])
def test_quarantined_sequence_is_released_by_retry_or_accept(context: StepContext, tmp_path: Path, how: str) -> None:
    sealed(context, tmp_path)
    for _ in range(LIMIT):
        attempted(process(context, tmp_path))
    store = process(context, tmp_path)
    store.release("job", "d", how)
    (tmp_path / "open").touch()
    assert attempted(store) == ("returned True" if how == "retry" else "skipped")
    assert store.watermark("job", "d") == Watermark({"": 5})


def test_outage_of_the_output_is_not_counted_as_a_failed_replay(context: StepContext, tmp_path: Path) -> None:
    sealed(context, tmp_path)
    output = Path(context.output_root)
    for _ in range(LIMIT + 1):
        store = process(context, tmp_path)
        output.rename(f"{output}.away")
        assert "it returned False" in attempted(store)
        Path(f"{output}.away").rename(output)
    assert state(context, tmp_path).tried_epochs == ()
    (tmp_path / "open").touch()
    assert attempted(process(context, tmp_path)) == "returned True"


def test_failed_redo_of_a_fenced_process_raises_and_is_not_counted(context: StepContext, tmp_path: Path) -> None:
    sealed(context, tmp_path)
    sequence = process(context, tmp_path).get_commit_sequence("job", "d")
    assert sequence is not None
    process(context, tmp_path)
    with pytest.raises(FencedError):
        sequence.commit()
    assert state(context, tmp_path).tried_epochs == ()


def test_lost_step_quarantines_its_dataset_and_the_error_keeps_the_ids_of_the_step(
    context: StepContext, tmp_path: Path
) -> None:
    store = process(context, tmp_path)
    store.put("job", "d", LostCommitStep("/somewhere"))
    store.seal("job", "d")
    sequence = store.get_commit_sequence("job", "d")
    assert sequence is not None
    with pytest.raises(LostError, match=r"release\('job', 'd', 'retry'\)") as raised:
        sequence.commit()
    step = f"{LostCommitStep.__module__}.LostCommitStep()"
    assert raised.value.ids == {"store": "job", "dataset": "d", "bucket": "3", "path": "/somewhere", "step": step}
    assert state(context, tmp_path).status is DatasetStatus.QUARANTINED
