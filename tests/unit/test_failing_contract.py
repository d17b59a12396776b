"""A failing contract shows the expected and the actual value, in a project that registers nothing with pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

USER_TEST = """
from distcommit.testing.contracts import CommitStepContract, NoteCommitStep


class Appending(NoteCommitStep):
    def execute(self):
        with open(self.path, "a") as file:
            file.write("row;")


class TestMyStep(CommitStepContract):
    def make_step(self, place, number):
        return Appending(f"{place}/{number}")

    def observe(self, place):
        return {path.name: path.read_text() for path in place.iterdir()}
"""


def test_failing_contract_shows_both_values(tmp_path: Path) -> None:
    (tmp_path / "test_my_step.py").write_text(USER_TEST)
    command = [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", "test_my_step.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "AssertionError: assert {'1': 'row;row;'} == {'1': 'row;'}" in done.stdout
