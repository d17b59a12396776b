"""Paths of steps are judged by their text alone."""

from __future__ import annotations

import itertools

import pytest

from distcommit.fs.local import LocalFileSystem
from distcommit.model.errors import ConfigurationError
from distcommit.model.steps import StepContext
from distcommit.model.work import StagedFile
from distcommit.protocol.paths import check_relative
from distcommit.steps.rename import FsRenameCommitStep


def test_every_short_path_is_judged_by_its_components() -> None:
    """The quick answer for many steps, whose folders are looked at once, is the answer that looking at each component
    gives: whichever path is wrong, and after a file from the same folder, too."""
    context = StepContext(LocalFileSystem(), "/staging", "/output")

    def steps_of(*paths: tuple[str, str]) -> int:
        files = [StagedFile(staged, final, 1, 1, 1, 1) for staged, final in paths]
        return len(FsRenameCommitStep.of_all(context, files))

    for length in range(8):
        for letters in itertools.product("a./\0", repeat=length):
            path = "".join(letters)
            beside = path.rpartition("/")[0] + "/b" if "/" in path else "b"
            in_turn = [(("b", path),), (("b", "b"), (path, "b")), (("b", "b"), ("b", path)), (("c/b", path),)]
            if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
                with pytest.raises(ConfigurationError):
                    check_relative(path)
                for paths in in_turn:
                    with pytest.raises(ConfigurationError):
                        steps_of(*paths)
                with pytest.raises(ConfigurationError):
                    steps_of((beside, beside), (path, beside))
            else:
                assert check_relative(path) == path
                for paths in [*in_turn, ((beside, beside), (path, beside))]:
                    assert steps_of(*paths) == len(paths)
