"""The API of the original design by itself: custom steps without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from distcommit.core.commit_groups import bucket_of
from distcommit.core.errors import ConflictError, CorruptError, FencedError, UnknownStepTypeError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext, Verdict
from distcommit.core.watermark import Watermark
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.paths.shared_names import bucket_name
from distcommit.steps.commit_sequence import CommitSequence
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import register
from distcommit.steps.watermark_step import HighWatermarkCommitStep
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.stores.logs.rebucket_logs import Move, rebucket
from distcommit.stores.state import job_store
from distcommit.stores.state.job_store import Roots


@register
class TouchCommitStep(CommitStep):
    """A custom step."""

    type_name: ClassVar[str] = "test-touch"

    def __init__(self, path: str) -> None:
        self.path = path

    def verify(self) -> bool:
        return Path(self.path).exists()

    def execute(self) -> None:
        Path(self.path).touch()

    def to_row(self) -> list[Any]:
        return [self.path]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls(*row)


@pytest.fixture
def context(tmp_path: Path) -> StepContext:
    return StepContext(LocalFileSystem(), str(tmp_path / "staging"), str(tmp_path / "output"))


def open_store(context: StepContext, tmp_path: Path) -> LogCommitStepStore:
    return LogCommitStepStore(context.fs, str(tmp_path / "stores"), context)


@pytest.fixture
def store(context: StepContext, tmp_path: Path) -> LogCommitStepStore:
    created = open_store(context, tmp_path)
    assert created.create("job")
    assert not created.create("job")
    return created


def move(low: int | None, high: int) -> HighWatermarkCommitStep:
    return HighWatermarkCommitStep("d", None if low is None else Watermark({"": low}), Watermark({"": high}))


def sealed(store: LogCommitStepStore) -> CommitSequence:
    """Seal a move of d's watermark to 5."""
    store.put("job", "d", move(None, 5))
    store.seal("job", "d")
    sequence = store.get_commit_sequence("job", "d")
    assert sequence is not None
    return sequence


def test_sealed_sequence_is_committed_by_another_process_after_a_crash(
    store: LogCommitStepStore, context: StepContext, tmp_path: Path
) -> None:
    staged = tmp_path / "staging" / "a"
    staged.write_bytes(b"x")
    store.put("job", "d", FsRenameCommitStep(context, "a", "d/a"))
    store.put("job", "d", TouchCommitStep(str(tmp_path / "own")))
    store.put("job", "d", move(None, 5))
    assert not store.exists("job", "d")
    store.seal("job", "d")
    assert store.exists("job", "d")
    del store  # simulates the death of the process

    after = open_store(context, tmp_path)
    sequence = after.get_commit_sequence("job", "d")
    assert sequence is not None
    assert after.watermark("job", "d") is None
    sequence.commit()
    sequence.commit()
    assert (tmp_path / "output" / "d" / "a").read_bytes() == b"x"
    assert (tmp_path / "own").exists()
    assert after.watermark("job", "d") == Watermark({"": 5})
    assert after.get_commit_sequence("job", "d") is None


def test_create_is_idempotent_and_keeps_steps_that_were_put(store: LogCommitStepStore) -> None:
    assert store.create("job", "d")
    store.put("job", "d", HighWatermarkCommitStep("d", None, Watermark({"": 1})))
    assert not store.create("job", "d")
    store.seal("job", "d")
    assert store.exists("job", "d")


def test_unsealed_steps_are_never_executed(store: LogCommitStepStore, context: StepContext, tmp_path: Path) -> None:
    store.put("job", "d", TouchCommitStep(str(tmp_path / "own")))
    assert store.get_commit_sequence("job", "d") is None
    assert open_store(context, tmp_path).get_commit_sequence("job", "d") is None


def test_pending_sequence_cannot_be_removed_or_extended(store: LogCommitStepStore, tmp_path: Path) -> None:
    store.put("job", "d", TouchCommitStep(str(tmp_path / "own")))
    store.seal("job", "d")
    with pytest.raises(ConflictError, match="pending"):
        store.remove("job", "d")
    with pytest.raises(ConflictError, match="pending"):
        store.remove("job")
    with pytest.raises(ConflictError, match="pending"):
        store.put("job", "d", TouchCommitStep("x"))
    sequence = store.get_commit_sequence("job", "d")
    assert sequence is not None
    sequence.commit()
    assert store.remove("job")
    assert not store.exists("job")
    assert not store.remove("job")


def test_single_process_seals_several_sequences_in_succession(store: LogCommitStepStore) -> None:
    for low, high in ((None, 1), (1, 2), (2, 3)):
        store.put("job", "d", move(low, high))
        store.seal("job", "d")
        sequence = store.get_commit_sequence("job", "d")
        assert sequence is not None
        sequence.commit()
    assert store.watermark("job", "d") == Watermark({"": 3})


def test_seal_is_refused_if_the_watermark_moved_meanwhile(store: LogCommitStepStore) -> None:
    store.put("job", "d", move(4, 5))
    with pytest.raises(ConflictError, match="the sequence cannot be sealed"):
        store.seal("job", "d")
    assert store.get_commit_sequence("job", "d") is None


def test_fenced_process_cannot_seal(store: LogCommitStepStore, context: StepContext, tmp_path: Path) -> None:
    store.put("job", "d", move(None, 5))
    open_store(context, tmp_path).create("job")
    with pytest.raises(ConflictError):
        store.seal("job", "d")


def test_fenced_process_never_takes_a_new_epoch(
    store: LogCommitStepStore, context: StepContext, tmp_path: Path
) -> None:
    sequence = sealed(store)
    sequence.commit()
    open_store(context, tmp_path).create("job")
    store.put("job", "d", move(5, 6))
    with pytest.raises(FencedError):
        store.seal("job", "d")


def test_commit_of_a_fenced_process_raises_until_the_newer_process_has_closed_the_sequence(
    store: LogCommitStepStore, context: StepContext, tmp_path: Path
) -> None:
    sequence = sealed(store)
    newer = open_store(context, tmp_path)
    newer.create("job")
    with pytest.raises(FencedError):
        sequence.commit()
    again = newer.get_commit_sequence("job", "d")
    assert again is not None
    again.commit()
    sequence.commit()


def test_unregistered_step_type_is_named(store: LogCommitStepStore, tmp_path: Path) -> None:
    class Unknown(TouchCommitStep):
        type_name = "test-unknown"

    store.put("job", "d", Unknown("x"))
    store.seal("job", "d")
    with pytest.raises(UnknownStepTypeError, match="not registered") as caught:
        store.get_commit_sequence("job", "d")
    assert caught.value.ids["type_name"] == "test-unknown"


def test_watermark_step_cannot_move_backwards() -> None:
    with pytest.raises(ValueError, match="go back"):
        move(5, 4)


@pytest.mark.parametrize("name", ["a/b", "..", "ünïcode", "a b:c", ".hidden", "x" * 500])
def test_any_job_name_and_urn_is_stored_in_its_own_folder(context: StepContext, tmp_path: Path, name: str) -> None:
    store = open_store(context, tmp_path)
    store.create(name)
    store.put(name, name, TouchCommitStep(str(tmp_path / "t")))
    store.seal(name, name)
    sequence = store.get_commit_sequence(name, name)
    assert sequence is not None
    assert [type(step) for step in sequence.steps] == [TouchCommitStep]
    assert [p.parent for p in tmp_path.rglob("store.json")] == [next((tmp_path / "stores").iterdir())]


def test_bool_step_is_verified_as_done_or_pending() -> None:
    assert TouchCommitStep.verify_all([TouchCommitStep("/"), TouchCommitStep("/nope")]) == [
        Verdict.DONE,
        Verdict.PENDING,
    ]


def bucket_file(tmp_path: Path, urn: str) -> Path:
    """Return the newest segment of the log that contains the dataset."""
    return max((tmp_path / "stores" / "job" / "log" / bucket_name(bucket_of(urn, 4))).glob("*.seg"))


def commit(store: LogCommitStepStore, urn: str) -> None:
    sequence = store.get_commit_sequence("job", urn)
    assert sequence is not None
    sequence.commit()


@pytest.mark.parametrize("damage", [b"", b"{}", None], ids=["emptied", "foreign", "cut"])
def test_corrupt_log_stops_only_its_own_datasets(
    store: LogCommitStepStore, context: StepContext, tmp_path: Path, damage: bytes | None
) -> None:
    assert bucket_of("d", 4) != bucket_of("g", 4)
    for urn in ("d", "g"):
        store.put("job", urn, TouchCommitStep(str(tmp_path / urn)))
        store.seal("job", urn)
    file = bucket_file(tmp_path, "d")
    whole = file.read_bytes()
    file.write_bytes(whole[:-3] if damage is None else damage)
    later = open_store(context, tmp_path)
    assert not later.create("job")
    commit(later, "g")
    assert (tmp_path / "g").exists()
    for act in (later.get_commit_sequence, later.exists, later.seal, later.watermark):
        with pytest.raises(CorruptError, match=file.name):
            act("job", "d")
    file.write_bytes(whole)
    commit(later, "d")
    assert (tmp_path / "d").exists()


def test_log_that_could_not_be_fenced_is_fenced_before_its_first_use(
    store: LogCommitStepStore, context: StepContext, tmp_path: Path
) -> None:
    store.put("job", "d", TouchCommitStep(str(tmp_path / "old")))
    assert not store.exists("job", "d"), "the older process must have read the log"
    file = bucket_file(tmp_path, "d")
    whole = file.read_bytes()
    file.write_bytes(b"")
    later = open_store(context, tmp_path)
    later.create("job")
    file.write_bytes(whole)
    assert later.watermark("job", "d") is None
    with pytest.raises(ConflictError, match="the sequence cannot be sealed"):
        store.seal("job", "d")


def test_rebucketed_store_can_be_read_and_must_be_reopened_for_writes(
    store: LogCommitStepStore, context: StepContext, tmp_path: Path
) -> None:
    sequence = sealed(store)
    late = open_store(context, tmp_path)
    late.create("job")
    closing = late.get_commit_sequence("job", "d")
    assert closing is not None
    closing.commit()
    folder = tmp_path / "stores" / "job"
    job = job_store.open_store(
        context.fs, Roots(str(folder), context.staging_root, context.output_root), "job", create=False
    )
    assert rebucket(job, Move(9), "moves", lambda step: None).datasets == 1
    assert late.watermark("job", "d") == Watermark({"": 5}), "the watermark of the current generation must be returned"
    late.put("job", "d", move(5, 7))
    acts: list[Callable[[], object]] = [
        lambda: late.seal("job", "d"),
        closing.commit,
        sequence.commit,
        lambda: late.quarantine("job", "d"),
    ]
    for act in acts:
        with pytest.raises(ConflictError):
            act()
    again = open_store(context, tmp_path)
    again.put("job", "d", move(5, 7))
    again.seal("job", "d")
    resumed = again.get_commit_sequence("job", "d")
    assert resumed is not None
    resumed.commit()
    assert late.watermark("job", "d") == again.watermark("job", "d") == Watermark({"": 7})
