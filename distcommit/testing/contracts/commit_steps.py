"""Contracts of CommitStep and CommitStepStore, as pytest classes to subclass; see `testing.contracts`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from distcommit.core.errors import ConflictError, DistcommitError
from distcommit.core.interfaces.commit_step import CommitStep, Lost, StepContext, Verdict
from distcommit.core.interfaces.commit_step import as_verification as verdict_of
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.steps.commit_sequence import CommitSequence, CommitStepStore
from distcommit.steps.step_registry import dump_steps, load_steps, register


class CommitStepContract(ABC):
    """Contract of commit steps: a step proves its effect at the target, can be executed any number of times, and
    survives storing.
    """

    @abstractmethod
    def make_step(self, place: Path, number: int) -> CommitStep:
        """Return the `number`th step of one dataset, prepared and not executed. Equal arguments give equal steps."""

    @abstractmethod
    def observe(self, folder: Path) -> Any:
        """Return the state of the target as a comparable value."""

    def context(self, folder: Path) -> StepContext:
        """Return the context that stored steps are loaded with."""
        return StepContext(LocalFileSystem(), str(folder / "staging"), str(folder / "output"))

    def bind(self, step: CommitStep, folder: Path) -> CommitStep:
        """Add attributes to a loaded step that are not stored with it, such as connections."""
        return step

    def lose(self, folder: Path, number: int) -> bool:
        """Make the step's effect impossible to prove or repeat. Return False if the step has no such failure; tests of
        the failure then do not apply.
        """
        return False

    def stored_and_loaded(self, step: CommitStep, folder: Path) -> CommitStep:
        """Return the step as another process loads it."""
        (loaded,) = load_steps(dump_steps([step]), self.context(folder))
        return self.bind(loaded, folder)

    def test_step_is_pending_until_it_is_executed(self, tmp_path: Path) -> None:
        step, before = self.make_step(tmp_path, 1), self.observe(tmp_path)
        assert verdict_of(step.verify()) is Verdict.PENDING
        assert self.observe(tmp_path) == before, "verify changed the target"
        step.execute()
        assert verdict_of(step.verify()) is Verdict.DONE
        assert self.observe(tmp_path) != before, "execute has no effect that `observe` sees"

    def test_repeated_execution_changes_nothing(self, tmp_path: Path) -> None:
        step = self.make_step(tmp_path, 1)
        assert step.execute() in (None, True)
        before = self.observe(tmp_path)
        assert step.execute() in (None, True)
        step.make_durable()
        self.stored_and_loaded(step, tmp_path).execute()
        assert self.observe(tmp_path) == before

    def test_repeated_execution_after_a_later_step_changes_nothing(self, tmp_path: Path) -> None:
        first, second = self.make_step(tmp_path, 1), self.make_step(tmp_path, 2)
        first.execute()
        second.execute()
        before = self.observe(tmp_path)
        first.execute()
        assert self.observe(tmp_path) == before
        assert [verdict_of(step.verify()) for step in (first, second)] == [Verdict.DONE] * 2

    def test_concurrent_executions_execute_once(self, tmp_path: Path) -> None:
        step = self.make_step(tmp_path, 1)
        copies = [self.stored_and_loaded(step, tmp_path) for _ in range(8)]
        with ThreadPoolExecutor(len(copies)) as pool:
            list(pool.map(lambda copy: copy.execute(), copies))
        assert verdict_of(step.verify()) is Verdict.DONE
        before = self.observe(tmp_path)
        step.execute()
        assert self.observe(tmp_path) == before

    def test_step_is_the_same_after_storing(self, tmp_path: Path) -> None:
        step = self.make_step(tmp_path, 1)
        loaded = self.stored_and_loaded(step, tmp_path)
        assert type(loaded) is type(step)
        assert dump_steps([loaded]) == dump_steps([step])
        assert verdict_of(loaded.verify()) is Verdict.PENDING
        loaded.execute()
        assert verdict_of(step.verify()) is Verdict.DONE

    def test_batched_steps_behave_like_single_steps(self, tmp_path: Path) -> None:
        steps = [self.make_step(tmp_path, number) for number in (1, 2, 3)]
        kind: type[CommitStep] = type(steps[0])
        steps[0].execute()
        verdicts = kind.verify_all(steps)
        assert verdicts == [Verdict.DONE, Verdict.PENDING, Verdict.PENDING]
        assert kind.execute_all(steps, verdicts) == [None] * 3
        assert kind.verify_all(steps) == [Verdict.DONE] * 3
        before = self.observe(tmp_path)
        assert kind.execute_all(steps) == [None] * 3
        assert self.observe(tmp_path) == before
        assert kind.verify_all([]) == []
        assert kind.execute_all([]) == []

    def test_lost_step_never_counts_as_done(self, tmp_path: Path) -> None:
        step = self.make_step(tmp_path, 1)
        if not self.lose(tmp_path, 1):
            return
        before = self.observe(tmp_path)
        assert isinstance(step.verify(), Lost)
        with pytest.raises(DistcommitError):
            step.execute()
        assert isinstance(step.verify(), Lost)
        assert self.observe(tmp_path) == before, "a lost step changed the target"

    @pytest.mark.parametrize("executed", [False, True])
    def test_abandoned_step_leaves_nothing_and_cannot_be_executed(self, tmp_path: Path, executed: bool) -> None:
        step, before = self.make_step(tmp_path, 1), self.observe(tmp_path)
        if executed:
            step.execute()
        present = self.observe(tmp_path)
        try:
            for _ in range(2):
                step.withdraw()
            for _ in range(2):
                step.undo()
        except DistcommitError:
            assert self.observe(tmp_path) == present, "a step that cannot be abandoned changed the target"
            return
        assert self.observe(tmp_path) == before
        with pytest.raises(DistcommitError):
            step.execute()
        assert self.observe(tmp_path) == before


@register
class NoteCommitStep(CommitStep):
    """A step that creates a file, for testing stores."""

    type_name: ClassVar[str] = "testing-note"

    def __init__(self, path: str) -> None:
        self.path = path

    def verify(self) -> bool:
        return Path(self.path).exists()

    def execute(self) -> None:
        try:
            Path(self.path).touch()
        except OSError as error:
            raise DistcommitError("a note cannot be created", path=self.path) from error

    def to_row(self) -> list[Any]:
        return [self.path]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls(*row)


class CommitStepStoreContract(ABC):
    """Contract of commit step stores: sealed steps exist completely until they are committed. Other steps are never
    visible.
    """

    @abstractmethod
    def open_store(self, folder: Path) -> CommitStepStore:
        """Return the store at `folder` as another process opens it. Only stored data is shared."""

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], CommitStepStore]:
        """Return a function that opens the store as a new process does."""
        return lambda: self.open_store(tmp_path / "store")

    @pytest.fixture
    def store(self, reopen: Callable[[], CommitStepStore]) -> CommitStepStore:
        """Return a new store that has one job, named `job`."""
        opened = reopen()
        assert not opened.exists("job")
        assert opened.create("job")
        assert not opened.create("job")
        assert opened.exists("job")
        return opened

    def sealed(self, store: CommitStepStore, folder: Path, urn: str, *names: str) -> CommitSequence:
        """Put a `NoteCommitStep` for each name, seal the steps, and return the sequence."""
        for name in names:
            assert store.put("job", urn, NoteCommitStep(str(folder / name)))
        assert store.get_commit_sequence("job", urn) is None
        assert not store.exists("job", urn)
        store.seal("job", urn)
        assert store.exists("job", urn)
        sequence = store.get_commit_sequence("job", urn)
        assert sequence is not None
        assert sequence.dataset_urn == urn
        assert [step.to_row() for step in sequence.steps] == [[str(folder / name)] for name in names]
        return sequence

    @pytest.mark.parametrize("urn", ["d", "a/b", "..", "ünï côde", ".hidden", "x" * 500])
    def test_sealed_steps_are_executed_in_order_and_removed(
        self, store: CommitStepStore, tmp_path: Path, urn: str
    ) -> None:
        sequence = self.sealed(store, tmp_path, urn, "1", "2", "3")
        sequence.commit()
        sequence.commit()
        assert [(tmp_path / name).exists() for name in "123"] == [True] * 3
        assert store.get_commit_sequence("job", urn) is None
        assert not store.exists("job", urn)

    def test_sealed_sequence_is_found_by_another_process(
        self, store: CommitStepStore, reopen: Callable[[], CommitStepStore], tmp_path: Path
    ) -> None:
        self.sealed(store, tmp_path, "d", "1", "2")
        store.put("job", "e", NoteCommitStep(str(tmp_path / "never")))
        after = reopen()
        assert after.exists("job", "d")
        assert not after.exists("job", "e")
        assert after.get_commit_sequence("job", "e") is None
        sequence = after.get_commit_sequence("job", "d")
        assert sequence is not None
        sequence.commit()
        assert store.get_commit_sequence("job", "d") is None
        assert not (tmp_path / "never").exists()

    def test_fenced_process_seals_nothing(
        self, store: CommitStepStore, reopen: Callable[[], CommitStepStore], tmp_path: Path
    ) -> None:
        store.put("job", "d", NoteCommitStep(str(tmp_path / "1")))
        newer = reopen()
        newer.create("job")
        with pytest.raises(ConflictError):
            store.seal("job", "d")
        assert not newer.exists("job", "d")
        self.sealed(newer, tmp_path, "d", "2").commit()
        with pytest.raises(ConflictError):
            store.seal("job", "d")

    def test_pending_sequence_cannot_be_removed_or_changed(self, store: CommitStepStore, tmp_path: Path) -> None:
        sequence = self.sealed(store, tmp_path, "d", "1")
        store.put("job", "e", NoteCommitStep(str(tmp_path / "2")))
        for refused in (
            lambda: store.remove("job", "d"),
            lambda: store.remove("job"),
            lambda: store.put("job", "d", NoteCommitStep("x")),
            lambda: store.seal("job", "d"),
        ):
            with pytest.raises(ConflictError):
                refused()
        assert store.exists("job", "d")
        assert store.remove("job", "e")
        assert not store.remove("job", "e")
        sequence.commit()
        assert store.remove("job")
        assert not store.exists("job")
        assert not store.remove("job")

    def test_failing_step_stops_the_sequence_and_leaves_it_pending(
        self, store: CommitStepStore, tmp_path: Path
    ) -> None:
        sequence = self.sealed(store, tmp_path, "d", "1", "missing/2", "3")
        with pytest.raises(DistcommitError):
            sequence.commit()
        assert store.exists("job", "d")
        assert [(tmp_path / name).exists() for name in "13"] == [True, False]
        (tmp_path / "missing").mkdir()
        assert sequence.commit() is True
        assert not store.exists("job", "d")
        assert (tmp_path / "3").exists()

    def test_successive_sequences_are_committed(self, store: CommitStepStore, tmp_path: Path) -> None:
        for number in range(4):
            self.sealed(store, tmp_path, "d", str(number)).commit()
            assert (tmp_path / str(number)).exists()

    def test_jobs_and_datasets_are_independent(self, store: CommitStepStore, tmp_path: Path) -> None:
        assert store.create("other")
        self.sealed(store, tmp_path, "d", "1")
        assert not store.exists("other", "d")
        assert not store.exists("job", "e")
        assert store.remove("other")
        assert store.exists("job", "d")

    def test_dataset_is_created_once(self, store: CommitStepStore) -> None:
        assert store.create("job", "d")
        assert not store.create("job", "d")
        assert not store.exists("job", "d")
