"""Test suites to subclass for a custom CommitStep, CommitStepStore, FileSystem, Source, Sink or construct.

    from distcommit.testing.contracts import CommitStepContract

    class TestMyStep(CommitStepContract):
        def make_step(self, place, number):           # `place`: an empty folder; number 1, 2, ...: successive steps
            prepare(place, number)
            return MyStep(f"{place}/{number}")

        def observe(self, folder):                    # the state of the target, comparable
            return sorted(folder.iterdir())

Suites need pytest, unlike other packages of `testing`. A suite uses a part through its interface alone, on the real
disk, and must not know simulations or models. Failures show values, because pytest rewrites the
suites' assertions. Start reading at `commit_steps`, or at the suite of your part.
"""

import pkgutil

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from distcommit.testing.contracts.commit_steps import CommitStepContract, CommitStepStoreContract, NoteCommitStep
from distcommit.testing.contracts.converter import ConverterContract
from distcommit.testing.contracts.file_system import FileSystemContract
from distcommit.testing.contracts.fork import ForkContract
from distcommit.testing.contracts.object_store import ObjectStoreContract
from distcommit.testing.contracts.row_checker import RowCheckerContract
from distcommit.testing.contracts.sink import SinkContract
from distcommit.testing.contracts.sink_parts.later_epochs import LaterEpochs
from distcommit.testing.contracts.source import SourceContract
from distcommit.testing.contracts.task_checker import TaskCheckerContract

__all__ = [
    "CommitStepContract",
    "CommitStepStoreContract",
    "ConverterContract",
    "FileSystemContract",
    "ForkContract",
    "LaterEpochs",
    "NoteCommitStep",
    "ObjectStoreContract",
    "RowCheckerContract",
    "SinkContract",
    "SourceContract",
    "TaskCheckerContract",
]
