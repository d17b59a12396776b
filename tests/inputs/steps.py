"""Commit steps, folders of jobs, and code of custom classes that ends the process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from distcommit.core.errors import ConfigurationError, DistcommitError, LostError
from distcommit.core.interfaces.commit_step import CommitStep, Lost, StepContext, Verification
from distcommit.core.interfaces.constructs import Converter
from distcommit.custom_class import create_custom
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.protocol.paths.staging import bucket_folder
from distcommit.spark.session import not_started
from distcommit.steps.commit_sequence import CommitSequence
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.stores.folders.staging import sweep_epoch
from distcommit.stores.logs.fencing import begin_run
from distcommit.stores.state.job_store import Roots, open_store
from tests.inputs.case import Case


class Step(CommitStep):
    """A custom step that records its execution, and then raises or returns the given object."""

    type_name = "inputs-step"

    def __init__(self, done: list[str], name: str, ends: object = None, verifies: object = False) -> None:
        self.done, self.name, self.ends, self.verifies = done, name, ends, verifies

    def __repr__(self) -> str:
        return self.name

    def verify(self) -> Verification | bool:
        return cast(bool, self.verifies(self.done) if callable(self.verifies) else self.verifies)

    def execute(self) -> bool | None:
        self.done.append(self.name)
        if isinstance(self.ends, Exception):
            raise self.ends
        return cast(bool | None, self.ends)

    def to_row(self) -> list[Any]:
        return [self.name]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls([], *row)


class OtherStep(Step):
    """A step of another class."""

    type_name = "inputs-other-step"


def _sequence(*steps: tuple[type[Step], str, object, object], folder: Path) -> str:
    """Return the result of commit() and the executed steps."""
    del folder
    done: list[str] = []
    created = tuple(kind(done, name, ends, verifies) for kind, name, ends, verifies in steps)
    try:
        answer = f"commit() returned {CommitSequence('d', created, lambda: done.append('closed')).commit()}"
    except LostError as error:
        answer = f"rejected: lost, expected {error.expected}"
    except DistcommitError as error:
        answer = f"rejected: {error.found or error.failure}"
    return f"{answer}; {', '.join(done)}"


def _after_load(done: list[str]) -> Verification | bool:
    return False if "LOAD" in done else Lost("a loaded table", "none")


def _steps(given: str, right: str, *steps: tuple[type[Step], str, object, object]) -> Case:
    return Case("commit-steps", given, right, run=lambda folder: _sequence(*steps, folder=folder))


_SWAP, _DROP = (Step, "SWAP", None, False), (Step, "DROP", None, False)
_FAILED = RuntimeError("no such table")


def _renames(folder: Path, *, nested: bool, paths: tuple[tuple[str, str], ...]) -> str:
    staging = folder / "staging"
    output = staging if nested else folder / "output"
    for folder_path in {staging, output}:
        folder_path.mkdir()
    context = StepContext(LocalFileSystem(durable=False), str(staging), str(output))
    steps = []
    for number, (source, target) in enumerate(paths):
        if not (nested and number):
            (staging / source).write_bytes(source.encode())
            first = FsRenameCommitStep(context, source, target)
            steps.append(first)
            continue
        file = first.file
        moved = type(file)(source, target, file.size_bytes, file.checksum, file.file_id, file.mtime_ns)
        steps.append(FsRenameCommitStep.of(context, moved))
    try:
        CommitSequence("d", tuple(steps), lambda: None).commit()
        answer = "done"
    except LostError:
        answer = "rejected: lost"
    return f"{answer}; {', '.join(sorted(f'{path.name}={path.read_text()}' for path in output.iterdir()))}"


def _job(place: Path, name: str, **moved: Path) -> Roots:
    roots = Roots(*(str(moved.get(part, place / name / part)) for part in ("store", "staging", "output")))
    store = open_store(LocalFileSystem(durable=False), roots, name, 1, create=True)
    begin_run(store, f"run of {name}")
    return roots


def _second(folder: Path, *, which: str, at: str) -> str:
    """Return the outcome of creating a second job with one folder at `at`, below the folders of the first job."""
    _job(folder, "first")
    try:
        _job(folder, "second", **{which: folder / at})
    except ConfigurationError as error:
        return f"rejected: {error.failure}"
    return "accepted"


def _around(folder: Path, *, which: str) -> str:
    _job(folder, "first", output=folder / "wide/below")
    try:
        _job(folder, "second", **{which: folder / "wide"})
    except ConfigurationError as error:
        return f"rejected: {error.failure}"
    return "accepted"


_INSIDE = "rejected: a job's folder is inside a folder of another job"
_TAKEN = "rejected: the folder belongs to another job"


def _roots(given: str, right: str, which: str, at: str) -> Case:
    return Case("nested-roots", given, right, run=partial(_second, which=which, at=at))


def _swept(folder: Path, *, link: str, target: str) -> str:
    """Return the files elsewhere that remain after a sweep of staging."""
    staging, elsewhere = folder / "staging", folder / "elsewhere"
    for below in ("", "00000_000000-a", bucket_folder(1, 0).partition("/")[2] + "/00000_000000-a"):
        (elsewhere / below).mkdir(parents=True, exist_ok=True)
        (elsewhere / below / "precious").touch()
    (staging / link).parent.mkdir(parents=True)
    (staging / link).symlink_to(elsewhere if target == "absolute" else target)
    try:
        sweep_epoch(LocalFileSystem(RealPosixCalls([str(staging)])), str(staging), 1, 0)
        answer = "swept"
    except OSError as error:
        answer = f"rejected: {type(error).__name__}"
    return f"{answer}; {len([*elsewhere.rglob('precious')])} of 3 left"


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("inputs_custom_class", None)


def _imported(folder: Path, *, code: str) -> str:
    """Return the outcome of loading a class whose module has that code."""
    (folder / "inputs_custom_class.py").write_text(code)
    with _importable(folder):
        try:
            create_custom(Converter, "converter", "inputs_custom_class:Mine", {})  # type: ignore[type-abstract]
        except ConfigurationError as error:
            return f"rejected: {error.found}"
    return "made"


def _not_started(_: Path, *, error: Exception) -> str:
    problem = not_started(error, "local[2]")
    return f"rejected: {problem.failure}, exit code {problem.exit_code}"


def _class(given: str, right: str, code: str) -> Case:
    return Case("custom-class", given, right, run=partial(_imported, code=code))


def _start(given: str, right: str, error: Exception) -> Case:
    return Case("spark-start", given, right, run=partial(_not_started, error=error))


def _rename(given: str, right: str, *paths: tuple[str, str], nested: bool = False) -> Case:
    return Case("renames", given, right, run=partial(_renames, nested=nested, paths=paths))


def _sweep(given: str, right: str, link: str, target: str) -> Case:
    return Case("staging-links", given, right, run=partial(_swept, link=link, target=target))


_Run = Callable[[Path], str]
_SERVE = "tests/unit/app/serving/test_failing_jobs.py"
_REDO = "tests/unit/stores/logs/test_failed_replays.py"

CASES: list[Case] = [
    _steps(
        "LOAD raises; SWAP, DROP of its class",
        "rejected: RuntimeError: no such table; LOAD",
        (Step, "LOAD", _FAILED, False),
        _SWAP,
        _DROP,
    ),
    _steps(
        "LOAD raises; a SWAP of another class",
        "rejected: RuntimeError: no such table; LOAD",
        (Step, "LOAD", _FAILED, False),
        (OtherStep, "SWAP", None, False),
    ),
    _steps(
        "SWAP raises after LOAD",
        "rejected: RuntimeError: no such table; LOAD, SWAP",
        (Step, "LOAD", None, False),
        (Step, "SWAP", _FAILED, False),
        _DROP,
    ),
    _steps(
        "execute() of LOAD returns False; SWAP",
        "rejected: it returned False; LOAD",
        (Step, "LOAD", False, False),
        _SWAP,
    ),
    _steps("execute() of LOAD returns 0; SWAP", "rejected: it returned 0; LOAD", (Step, "LOAD", 0, False), _SWAP),
    _steps(
        "execute() of LOAD returns 'ok'; SWAP", "rejected: it returned 'ok'; LOAD", (Step, "LOAD", "ok", False), _SWAP
    ),
    _steps(
        "execute() of LOAD returns True; SWAP",
        "commit() returned True; LOAD, SWAP, closed",
        (Step, "LOAD", True, False),
        _SWAP,
    ),
    _steps(
        "all steps were done before",
        "commit() returned True; closed",
        (Step, "LOAD", None, True),
        (Step, "SWAP", None, True),
    ),
    _steps(
        "SWAP is lost until LOAD was executed",
        "commit() returned True; LOAD, SWAP, closed",
        (Step, "LOAD", None, False),
        (Step, "SWAP", None, _after_load),
    ),
    _steps(
        "SWAP is lost after LOAD",
        "rejected: lost, expected a table; LOAD",
        (Step, "LOAD", None, False),
        (Step, "SWAP", None, Lost("a table", "none")),
        _DROP,
    ),
    _steps(
        "verify() of LOAD returns None",
        "rejected: TypeError: verify() must return DONE, PENDING, LOST or a bool, and returned None; ",
        (Step, "LOAD", None, None),
    ),
    _steps(
        "verify() of LOAD returns 1",
        "rejected: TypeError: verify() must return DONE, PENDING, LOST or a bool, and returned 1; ",
        (Step, "LOAD", None, 1),
    ),
    Case(
        "commit-steps",
        "a sequence fails in three processes after the one that sealed it",
        "quarantined, and skipped by later ones",
        test=f"{_REDO}::test_failed_replays_of_as_many_processes_as_the_limit_quarantine_the_dataset",
    ),
    Case(
        "commit-steps",
        "a sequence fails five times in the process that sealed it",
        "pending, no attempt counted",
        test=f"{_REDO}::test_process_that_sealed_a_sequence_may_retry_it_without_limit",
    ),
    Case(
        "commit-steps",
        "a sequence fails while its output is away",
        "pending, no attempt counted",
        test=f"{_REDO}::test_outage_of_the_output_is_not_counted_as_a_failed_replay",
    ),
    _rename("a to b, then b to c, staging and output one folder", "done; c=a", ("a", "b"), ("b", "c"), nested=True),
    _rename("a to x, then b to x", "rejected: lost; x=a", ("a", "x"), ("b", "x")),
    _rename("a to x, b to y", "done; x=a, y=b", ("a", "x"), ("b", "y")),
    _roots("an output inside the output of another job", _INSIDE, "output", "first/output/x"),
    _roots("an output inside the error folder of another job", _INSIDE, "output", "first/output/_rejected/x"),
    _roots("a staging folder inside the output of another job", _INSIDE, "staging", "first/output/x"),
    _roots("a store inside the output of another job", _INSIDE, "store", "first/output/x"),
    _roots("an output inside the store of another job", _INSIDE, "output", "first/store/x"),
    _roots("an output inside the staging folder of another job", _INSIDE, "output", "first/staging/x"),
    _roots("an output that is the store of another job", _INSIDE, "output", "first/store"),
    _roots("an output that is the staging folder of another job", _TAKEN, "output", "first/staging"),
    _roots("an output that is the output of another job", _TAKEN, "output", "first/output"),
    _roots("a store that is the output of another job", _INSIDE, "store", "first/output"),
    _roots("an output beside the output of another job", "accepted", "output", "first/output-2"),
    _roots("an output in the folder that holds another job's folders", "accepted", "output", "first/second"),
    Case("nested-roots", "an output around the output of another job", _INSIDE, run=partial(_around, which="output")),
    Case(
        "nested-roots",
        "a staging folder around the output of another job",
        _INSIDE,
        run=partial(_around, which="staging"),
    ),
    Case("nested-roots", "a store around the output of another job", _INSIDE, run=partial(_around, which="store")),
    _sweep(
        "an epoch's folder is a link to elsewhere", "rejected: OutsideRootError; 3 of 3 left", "0000000001", "absolute"
    ),
    _sweep(
        "a bucket's folder is a link to elsewhere",
        "rejected: OutsideRootError; 3 of 3 left",
        bucket_folder(1, 0),
        "absolute",
    ),
    _sweep(
        "a bucket's folder is a relative link to elsewhere",
        "rejected: OutsideRootError; 3 of 3 left",
        bucket_folder(1, 0),
        "../../elsewhere",
    ),
    _class("a module that calls sys.exit(0)", "rejected: SystemExit: 0", "import sys\nsys.exit(0)\n"),
    _class("a module that raises KeyError", "rejected: KeyError: 'price'", "raise KeyError('price')\n"),
    _class(
        "a module that raises a BaseException", "rejected: BaseException: a panic", "raise BaseException('a panic')\n"
    ),
    _class(
        "a class whose __init__ calls sys.exit('no licence')",
        "rejected: SystemExit: no licence",
        "import sys\nclass Mine:\n    def __init__(self):\n        sys.exit('no licence')\n",
    ),
    _class(
        "a class whose __init__ raises RuntimeError",
        "rejected: RuntimeError: no",
        "class Mine:\n    def __init__(self):\n        raise RuntimeError('no')\n",
    ),
    Case(
        "serve",
        "SystemExit in the driver part of a run",
        "the run is reported as failed, and the job is run again",
        test=f"{_SERVE}::test_run_that_ends_its_thread_is_reported_as_failed_and_the_job_runs_again",
    ),
    Case(
        "serve",
        "a job file whose class ends the process as it is imported",
        "reported; the other jobs go on",
        test=f"{_SERVE}::test_class_that_exits_at_import_is_reported_and_the_other_jobs_continue",
    ),
    _start(
        "the JVM exits before it has answered",
        "rejected: the JVM died while Spark started, exit code 4",
        PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
    ),
    _start(
        "the JVM dies in the middle of a call",
        "rejected: the JVM died while Spark started, exit code 4",
        Py4JNetworkError("Answer from Java side is empty"),
    ),
    _start(
        "a setting of another type than Spark's builder takes",
        "rejected: Spark does not start, exit code 2",
        ValueError("no such setting"),
    ),
]
