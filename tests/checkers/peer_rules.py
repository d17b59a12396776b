"""The commit rules of other systems, each as a small program on the local file system, for `peers` to crash.

Own code after what those systems publish about themselves. A program ingests one dataset whose records are the numbers
from its watermark up to `end` (even), two files a run. Those in `SOUND` are; each of their subclasses replaces one rule
by a peer's, so that what breaks is that rule and nothing else.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import ClassVar, Protocol

from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.paths.temporary_and_probes import TEMPORARY

ROOT = "/job"
OUTPUT, STAGING, STORE, STATE = f"{ROOT}/output", f"{ROOT}/staging", f"{ROOT}/store", f"{ROOT}/state"
_RECORD_BYTES = 5


class RefusedError(Exception):
    """The program does not start, and never will without an operator."""


@dataclass(frozen=True, slots=True)
class Move:
    """Publish one staged file; names are relative to their roots."""

    staged: str
    final: str
    data: str


class Program(Protocol):
    """An ingestion job by another system's rules."""

    peer: ClassVar[str]
    rule: ClassVar[str]

    def run(self, fs: LocalFileSystem, end: int) -> None:
        """Run once: recover an earlier run's work, then ingest up to `end`."""
        ...

    def watermark(self, fs: LocalFileSystem) -> int | None:
        """Return the first number not ingested yet; None if nothing is stored."""
        ...


class CommitSequences:
    """Sound: write-ahead, sealed whole, proven by content, synced in the right order."""

    peer: ClassVar[str] = "none"
    rule: ClassVar[str] = "the sound program that the others change one rule of"

    def run(self, fs: LocalFileSystem, end: int) -> None:
        self._enter(fs)
        for folder in (STORE, STATE):
            _sweep(fs, folder, TEMPORARY)
        self._execute(fs, self._sealed(fs))
        _sweep(fs, STAGING)
        low = self.watermark(fs) or 0
        if low < end:
            moves = self._stage(fs, low, end)
            self._seal(fs, moves, end)
            self._execute(fs, self._sealed(fs))
            _sweep(fs, STAGING)
        self._leave(fs)

    def watermark(self, fs: LocalFileSystem) -> int | None:
        return max((int(e.name) for e in fs.list_folder(STATE) if e.name.isdecimal()), default=None)

    def _enter(self, fs: LocalFileSystem) -> None:
        """Hook before everything else."""

    def _leave(self, fs: LocalFileSystem) -> None:
        """Hook after everything else."""

    def _stage(self, fs: LocalFileSystem, low: int, end: int) -> list[Move]:
        moves = _two_files(low, end)
        for move in moves:
            _write(fs, f"{STAGING}/{move.staged}", move.data)
        fs.sync([STAGING], ROOT)
        return moves

    def _seal(self, fs: LocalFileSystem, moves: list[Move], end: int) -> None:
        fs.put_if_absent(f"{STORE}/sequence", _steps_text(moves, end))

    def _sealed(self, fs: LocalFileSystem) -> list[Move | int]:
        steps: list[Move | int] = []
        for entry in sorted(fs.list_folder(STORE), key=lambda e: e.name):
            steps += _parsed(fs.read(f"{STORE}/{entry.name}"))
        return steps

    def _execute(self, fs: LocalFileSystem, steps: list[Move | int]) -> None:
        for step in steps:
            if isinstance(step, int):
                fs.sync([OUTPUT], ROOT)
                self._set_watermark(fs, step)
            elif not self._is_done(fs, step):
                self._move(fs, step)
        if steps:
            _sweep(fs, STORE)
            fs.sync([STORE], ROOT)

    def _set_watermark(self, fs: LocalFileSystem, end: int) -> None:
        fs.put_if_absent(f"{STATE}/{end:04d}", b"")

    def _is_done(self, fs: LocalFileSystem, move: Move) -> bool:
        target = f"{OUTPUT}/{move.final}"
        return fs.status(target) is not None and fs.read(target) == move.data.encode()

    def _move(self, fs: LocalFileSystem, move: Move) -> None:
        fs.rename(f"{STAGING}/{move.staged}", f"{OUTPUT}/{move.final}")


class StoreInPlace(CommitSequences):
    peer = "Apache Gobblin"
    rule = "the commit sequence is written in place, without a temporary file or fsync"

    def _seal(self, fs: LocalFileSystem, moves: list[Move], end: int) -> None:
        _write(fs, f"{STORE}/sequence", _steps_text(moves, end).decode(), sync=False)


class TargetExists(CommitSequences):
    peer = "Apache Gobblin"
    rule = "a target that exists counts as done (staging and output on two file systems: copy, then delete)"

    def _is_done(self, fs: LocalFileSystem, move: Move) -> bool:
        return fs.status(f"{OUTPUT}/{move.final}") is not None

    def _move(self, fs: LocalFileSystem, move: Move) -> None:
        _write(fs, f"{OUTPUT}/{move.final}", fs.read(f"{STAGING}/{move.staged}").decode())
        fs.delete(f"{STAGING}/{move.staged}")


class LockFile(CommitSequences):
    peer = "Apache Gobblin"
    rule = "the job lock is a file without owner or lease"

    def _enter(self, fs: LocalFileSystem) -> None:
        if fs.status(f"{ROOT}/lock") is not None:
            raise RefusedError("another run holds the lock")
        _write(fs, f"{ROOT}/lock", "")

    def _leave(self, fs: LocalFileSystem) -> None:
        fs.delete(f"{ROOT}/lock")


class SourceMissing(CommitSequences):
    peer = "Apache SeaTunnel"
    rule = "a missing source counts as already finished (staged files are closed, not synced)"

    def _stage(self, fs: LocalFileSystem, low: int, end: int) -> list[Move]:
        moves = _two_files(low, end)
        for move in moves:
            _write(fs, f"{STAGING}/{move.staged}", move.data, sync=False)
        return moves

    def _is_done(self, fs: LocalFileSystem, move: Move) -> bool:
        return fs.status(f"{STAGING}/{move.staged}") is None


class StepByStep(CommitSequences):
    peer = "a CommitStepStore without seal"
    rule = "steps are put one by one, each durably; recovery executes what it finds"

    def _seal(self, fs: LocalFileSystem, moves: list[Move], end: int) -> None:
        for number, move in enumerate(moves):
            fs.put_if_absent(f"{STORE}/{number:04d}", _steps_text([move], None))
        fs.put_if_absent(f"{STORE}/{len(moves):04d}", _steps_text([], end))


class OffsetsInNames:
    """Sound without write-ahead: a file's name has its numbers, so that a repetition is harmless."""

    peer: ClassVar[str] = "none"
    rule: ClassVar[str] = "the sound program that the others change one rule of"

    def run(self, fs: LocalFileSystem, end: int) -> None:
        for folder in (STATE, OUTPUT):
            _sweep(fs, folder, TEMPORARY)
        stored = self.watermark(fs)
        first_run = stored is None and not fs.list_folder(OUTPUT)
        low = 0 if first_run else end if stored is None else stored
        for number in range(low, end, 2):
            fs.put_if_absent(f"{OUTPUT}/{number:04d}", f"{number:04d}\n{number + 1:04d}\n".encode())
        if stored is None or stored < end:
            self._set_watermark(fs, end)

    def watermark(self, fs: LocalFileSystem) -> int | None:
        return max((int(e.name) for e in fs.list_folder(STATE) if e.name.isdecimal()), default=None)

    def _set_watermark(self, fs: LocalFileSystem, end: int) -> None:
        fs.put_if_absent(f"{STATE}/{end:04d}", b"")


class StateFileWindow(OffsetsInNames):
    peer = "Apache Gobblin"
    rule = "the watermark file is deleted before the new one takes its name; without one Kafka begins at `latest`"

    def watermark(self, fs: LocalFileSystem) -> int | None:
        return int(fs.read(f"{STATE}/current")) if fs.status(f"{STATE}/current") is not None else None

    def _set_watermark(self, fs: LocalFileSystem, end: int) -> None:
        fs.delete(f"{STATE}/next")
        _write(fs, f"{STATE}/next", str(end))
        fs.sync([STATE], ROOT)
        fs.delete(f"{STATE}/current")
        fs.rename(f"{STATE}/next", f"{STATE}/current")
        fs.sync([STATE], ROOT)


class TaskCommitPublishes(CommitSequences):
    """Everything is synced: only the rule itself breaks. A rerun begins at the stored offset, under a new job id."""

    peer = "Hadoop FileOutputCommitter v2"
    rule = "task commit renames into the destination; offsets are stored after job commit"

    def run(self, fs: LocalFileSystem, end: int) -> None:
        _sweep(fs, STATE, TEMPORARY)
        _sweep(fs, STAGING)
        low = self.watermark(fs) or 0
        if low >= end:
            return
        self._commit(fs, _two_files(low, end))
        fs.delete(f"{STATE}/_SUCCESS")
        fs.put_if_absent(f"{STATE}/_SUCCESS", b"")
        self._set_watermark(fs, end)

    def _commit(self, fs: LocalFileSystem, moves: list[Move]) -> None:
        for move in moves:
            _write(fs, f"{STAGING}/{move.staged}", move.data)
            self._move(fs, move)
            fs.sync([OUTPUT], ROOT)


class JobCommitPublishes(TaskCommitPublishes):
    peer = "Hadoop manifest committer"
    rule = "job commit renames what the manifests name; what a dead job commit left is not recovered"

    def _commit(self, fs: LocalFileSystem, moves: list[Move]) -> None:
        for move in moves:
            _write(fs, f"{STAGING}/{move.staged}", move.data)
        for move in moves:
            self._move(fs, move)
        fs.sync([OUTPUT], ROOT)


SOUND: tuple[Program, ...] = (CommitSequences(), OffsetsInNames())
"""Programs in which nothing may be found."""

PROGRAMS: tuple[Program, ...] = (
    StoreInPlace(),
    TargetExists(),
    StateFileWindow(),
    LockFile(),
    TaskCommitPublishes(),
    JobCommitPublishes(),
    SourceMissing(),
    StepByStep(),
)


def records_of(data: bytes) -> list[int] | None:
    """Return the numbers in a published file; None if it is truncated."""
    lines = data.decode().splitlines(keepends=True)
    return [int(line) for line in lines] if all(len(line) == _RECORD_BYTES for line in lines) else None


def _two_files(low: int, end: int) -> list[Move]:
    """Return two work units with final names that no other run has, as Spark's part files."""
    run, middle = uuid.uuid4().hex, (low + end) // 2
    return [
        Move(f"{run}-{part}", f"part-{part}-{run}", "".join(f"{n:04d}\n" for n in range(*bounds)))
        for part, bounds in enumerate(((low, middle), (middle, end)))
    ]


def _write(fs: LocalFileSystem, path: str, text: str, *, sync: bool = True) -> None:
    writer = fs.create(path)
    if text:
        writer.write(text.encode())
    writer.close_file(sync=sync)


def _sweep(fs: LocalFileSystem, folder: str, prefix: str = "") -> None:
    for entry in fs.list_folder(folder):
        if entry.name.startswith(prefix):
            fs.delete(f"{folder}/{entry.name}")


def _steps_text(moves: list[Move], end: int | None) -> bytes:
    ends = [] if end is None else [end]
    return json.dumps([*([move.staged, move.final, move.data] for move in moves), *ends]).encode()


def _parsed(data: bytes) -> list[Move | int]:
    return [step if isinstance(step, int) else Move(*step) for step in json.loads(data)]
