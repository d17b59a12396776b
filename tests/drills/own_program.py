"""A program that publishes files by a commit step store of its own, without a job file and without Spark.

`python -m tests.drills.own_program COMMAND ...` runs in its data folder, with the commands `seal`, `commit`, `release
HOW` and `show`. Its source is the natural numbers. Each round stages two files, a number a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from distcommit import (
    DistcommitError,
    FsRenameCommitStep,
    HighWatermarkCommitStep,
    LocalFileSystem,
    LogCommitStepStore,
    StepContext,
    Watermark,
)

JOB, DATASET = "copies", "numbers"
FILES, PER_FILE = 2, 5
PER_ROUND = FILES * PER_FILE
_PARTITION = "0"


class _Program:
    """The program's store, opened in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._staging, self._output = folder / "staging", folder / "output"
        for path in (self._staging, self._output):
            path.mkdir(exist_ok=True)
        self._context = StepContext(LocalFileSystem(), str(self._staging), str(self._output))
        self._store = LogCommitStepStore(self._context.fs, str(folder / "stores"), self._context)
        self._store.create(JOB)

    def seal(self) -> None:
        """Stage the numbers of a round, and seal their files with the new watermark."""
        low = self._store.watermark(JOB, DATASET)
        begin = self._position(low)
        for first in range(begin, begin + PER_ROUND, PER_FILE):
            name = f"from-{first}.txt"
            (self._staging / name).write_text("".join(f"{number}\n" for number in range(first, first + PER_FILE)))
            self._store.put(JOB, DATASET, FsRenameCommitStep(self._context, name, f"{DATASET}/{name}"))
        high = Watermark({_PARTITION: begin + PER_ROUND})
        self._store.put(JOB, DATASET, HighWatermarkCommitStep(DATASET, low, high))
        self._store.seal(JOB, DATASET)

    def commit(self) -> None:
        """Commit the sealed sequence."""
        sequence = self._store.get_commit_sequence(JOB, DATASET)
        if sequence is None:
            sys.exit("there is nothing to commit")
        sequence.commit()

    def release(self, how: str) -> None:
        """Release the dataset."""
        self._store.release(JOB, DATASET, how)

    def show(self) -> None:
        """Print the next number to read, and whether the dataset has an open sequence."""
        begin = self._position(self._store.watermark(JOB, DATASET))
        sys.stdout.write(json.dumps({"begin": begin, "is_open": self._store.exists(JOB, DATASET)}) + "\n")

    def _position(self, watermark: Watermark | None) -> int:
        position = watermark.positions[_PARTITION] if watermark is not None else 0
        assert isinstance(position, int)
        return position

    def do(self, commands: Iterator[str]) -> None:
        """Run the command of the command line."""
        for command in commands:
            match command:
                case "seal":
                    self.seal()
                case "commit":
                    self.commit()
                case "release":
                    self.release(next(commands))
                case _:
                    self.show()


if __name__ == "__main__":
    try:
        _Program(Path.cwd()).do(iter(sys.argv[1:]))
    except DistcommitError as raised:
        sys.exit(f"error: {raised}")
