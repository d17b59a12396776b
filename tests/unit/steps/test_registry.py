"""Type names of commit steps: each has one class."""

from __future__ import annotations

import msgspec
import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.steps import CommitStep, StepContext
from distcommit.core.work import StagedFile
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.steps.registry import dump_steps, load_steps, register
from distcommit.steps.rename import FsRenameCommitStep


def test_a_type_name_that_is_taken_is_refused_and_stays_whose_it_was() -> None:
    class Mine(FsRenameCommitStep):
        """Of the same type name, which it inherits."""

    with pytest.raises(ConfigurationError, match="two classes of commit steps have the same type name") as refused:
        register(Mine)
    for told in ("type_name=", FsRenameCommitStep.type_name, repr(FsRenameCommitStep), repr(Mine), "To do"):
        assert told in str(refused.value)
    assert type_of(FsRenameCommitStep.type_name) is FsRenameCommitStep
    register(FsRenameCommitStep)  # as when its module is loaded anew


def type_of(type_name: str) -> type[CommitStep]:
    """What a stored step of that type is read as."""
    context = StepContext(LocalFileSystem(), "/staging", "/output")
    [stored] = dump_steps([FsRenameCommitStep.of(context, StagedFile("staged", "final", 1, 1, 1, 1))])
    [step] = load_steps([msgspec.structs.replace(stored, type_name=type_name)], context)
    return type(step)
