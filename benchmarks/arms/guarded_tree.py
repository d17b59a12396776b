"""A tree of this repository, measured in a process of its own: the present one, or a commit."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from benchmarks.workloads import guarded

HERE = Path(__file__).parents[2]


class UnmeasurableError(Exception):
    """A tree cannot be measured: the commit is missing, or its code is too different; the message states why, in one
    line."""


class GuardedTree:
    """The process that measures a tree; it ends with the block.

    The first sample of each kind does not count, as it includes loading.

    Args:
        tree: the repository's folder.
        folder: on the measured disk.
    """

    def __init__(self, tree: Path, folder: Path) -> None:
        self._tree, self._folder = tree.resolve(), folder
        self._warm: set[str] = set()

    def __enter__(self) -> Self:
        command = [sys.executable, "-P", guarded.__file__, str(self._tree), str(self._folder)]
        env = {**os.environ, "PYTHONPATH": str(self._tree), "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def sample(self, name: str, datasets: int) -> dict[str, float]:
        """Return the seconds of one sample, `cpu` and `wall`.

        Raises:
            UnmeasurableError: if the tree cannot answer.
        """
        if name not in self._warm:
            self._warm.add(name)
            self._ask(name, min(datasets, 16))
        return self._ask(name, datasets)

    def _ask(self, name: str, datasets: int) -> dict[str, float]:
        if self._process.stdin is None or self._process.stdout is None or self._process.stderr is None:
            raise AssertionError("it has pipes")
        try:
            self._process.stdin.write(f"{name} {datasets}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            lines = self._process.stderr.read().strip().splitlines()
            raise UnmeasurableError(f"{name} can't be measured of it: {lines[-1] if lines else 'it ended'}")
        return msgspec.json.decode(line, type=dict[str, float])


@contextmanager
def worktree(revision: str) -> Iterator[tuple[Path, str]]:
    """Yield a commit of this repository in a folder of its own, and its full name; Git drops it after the block.

    Raises:
        UnmeasurableError: if there is no such commit.
    """
    name = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", what=f"no commit is named {revision}")
    with tempfile.TemporaryDirectory(prefix="guard-") as folder:
        tree = f"{folder}/tree"
        _git("worktree", "add", "--detach", tree, name, what=f"{revision} can't be had")
        try:
            yield Path(tree), name
        finally:
            _git("worktree", "remove", "--force", tree, what="its worktree can't be removed")


def _git(*arguments: str, what: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UnmeasurableError(f"{what}: {error}") from None
    if done.returncode:
        raise UnmeasurableError(f"{what}: {done.stderr.strip() or 'git does not know it'}")
    return done.stdout.strip()
