"""The log store fulfills the commit step store contract, and so does an unrelated minimal store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from distcommit.core.errors import ConflictError, FencedError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.records.sealed_sequences import StepBatch
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.steps.commit_sequence import CommitSequence, CommitStepStore
from distcommit.steps.step_registry import dump_steps, load_steps
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.testing.contracts import CommitStepStoreContract

CONTEXT = StepContext(LocalFileSystem(), "/staging", "/output")


class TestLogCommitStepStore(CommitStepStoreContract):
    def open_store(self, folder: Path) -> CommitStepStore:
        context = StepContext(LocalFileSystem(), str(folder / "staging"), str(folder / "output"))
        return LogCommitStepStore(context.fs, str(folder / "stores"), context)


@dataclass
class Sealed:
    """The sealed state of a job in a dict-backed store."""

    epoch: int = 0
    sequences: dict[str, tuple[StepBatch, ...]] = field(default_factory=dict)


class DictCommitStepStore(CommitStepStore):
    """All jobs in one dict that represents the storage; each instance is one process."""

    def __init__(self, jobs: dict[str, Sealed]) -> None:
        self._jobs = jobs
        self._epochs: dict[str, int] = {}
        self._unsealed: dict[tuple[str, str], list[CommitStep]] = {}

    def create(self, store: str, urn: str | None = None) -> bool:
        new = store not in self._jobs
        job = self._jobs.setdefault(store, Sealed())
        if store not in self._epochs:
            job.epoch += 1
            self._epochs[store] = job.epoch
        if urn is None:
            return new
        missing = (store, urn) not in self._unsealed
        self._unsealed.setdefault((store, urn), [])
        return missing

    def exists(self, store: str, urn: str | None = None) -> bool:
        return store in self._jobs and (urn is None or urn in self._jobs[store].sequences)

    def remove(self, store: str, urn: str | None = None) -> bool:
        if not self.exists(store):
            return False
        if urn is not None:
            self._refuse_pending(store, urn)
            return bool(self._unsealed.pop((store, urn), None))
        for pending in self._jobs[store].sequences:
            self._refuse_pending(store, pending)
        del self._jobs[store]
        return True

    def put(self, store: str, urn: str, step: CommitStep) -> bool:
        self._refuse_pending(store, urn)
        self._unsealed.setdefault((store, urn), []).append(step)
        return True

    def seal(self, store: str, urn: str) -> None:
        self._refuse_pending(store, urn)
        if self._epochs.get(store) != self._jobs[store].epoch:
            raise FencedError("another process opened this store", store=store)
        self._jobs[store].sequences[urn] = dump_steps(self._unsealed.pop((store, urn), []))

    def get_commit_sequence(self, store: str, urn: str) -> CommitSequence | None:
        sealed = self._jobs[store].sequences
        if urn not in sealed:
            return None
        close: Callable[[], object] = lambda: sealed.pop(urn, None)  # noqa: E731
        return CommitSequence(urn, tuple(load_steps(sealed[urn], CONTEXT)), lambda: void(close()))

    def _refuse_pending(self, store: str, urn: str) -> None:
        if urn in self._jobs[store].sequences:
            raise ConflictError("a sealed sequence is pending", store=store, dataset=urn)


def void(_: object) -> None:
    """Discard a result."""


class TestDictCommitStepStore(CommitStepStoreContract):
    @pytest.fixture(autouse=True)
    def _jobs(self) -> None:
        self.jobs: dict[str, Sealed] = {}

    def open_store(self, folder: Path) -> CommitStepStore:
        return DictCommitStepStore(self.jobs)
