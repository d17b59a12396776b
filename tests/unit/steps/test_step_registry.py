"""Type names of commit steps: each belongs to one class."""

from __future__ import annotations

import msgspec
import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.work_units import StagedFile
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import dump_steps, load_steps, register


def test_duplicate_type_name_is_rejected_and_keeps_its_class() -> None:
    class Mine(FsRenameCommitStep):
        """A step class that inherits the same type name."""

    with pytest.raises(ConfigurationError, match="two classes of commit steps have the same type name") as refused:
        register(Mine)
    for expected_text in ("type_name=", FsRenameCommitStep.type_name, repr(FsRenameCommitStep), repr(Mine), "To do"):
        assert expected_text in str(refused.value)
    assert type_of(FsRenameCommitStep.type_name) is FsRenameCommitStep
    register(FsRenameCommitStep)  # as when its module is reloaded


def type_of(type_name: str) -> type[CommitStep]:
    """Return the class of a stored step of that type."""
    context = StepContext(LocalFileSystem(), "/staging", "/output")
    [stored] = dump_steps([FsRenameCommitStep.of(context, StagedFile("staged", "final", 1, 1, 1, 1))])
    [step] = load_steps([msgspec.structs.replace(stored, type_name=type_name)], context)
    return type(step)
