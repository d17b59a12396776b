"""What a CommitStep, CommitStepStore, FileSystem, Source, Sink or construct of yours has to keep: classes to subclass.

    from distcommit.testing.contracts import CommitStepContract

    class TestMyStep(CommitStepContract):
        def make_step(self, place, number):           # `place`: an empty folder; number 1, 2, ...: one after the other
            prepare(place, number)
            return MyStep(f"{place}/{number}")

        def observe(self, place):                     # what is at the target, as anything that compares
            return sorted(place.iterdir())

Needs pytest, as no other package of `testing` does. A suite knows a part by its interface alone, on the real disk: it
must not know what is simulated or modelled. Start reading at `commit_steps`, or at the suite of what you wrote.
"""

from distcommit.testing.contracts.commit_steps import CommitStepContract, CommitStepStoreContract, NoteCommitStep
from distcommit.testing.contracts.converter import ConverterContract
from distcommit.testing.contracts.file_system import FileSystemContract
from distcommit.testing.contracts.fork import ForkContract
from distcommit.testing.contracts.later_epochs import LaterEpochs
from distcommit.testing.contracts.object_store import ObjectStoreContract
from distcommit.testing.contracts.row_checker import RowCheckerContract
from distcommit.testing.contracts.sink import SinkContract
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
