"""A command ends without a traceback and with its documented exit code: broken pipes, full disks, signals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_COMMAND = [sys.executable, "-m", "distcommit"]
_TIMEOUT_S = 60


def run(*words: str, stdout: int, preexec: Callable[[], None] | None = None) -> tuple[int, str]:
    """Return the exit code and stderr of a command."""
    ended = subprocess.run(
        [*_COMMAND, *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        preexec_fn=preexec,
    )
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    return ended.returncode, ended.stderr


@contextmanager
def pipe_without_reader() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("--version",), ("--terms",)])
def test_output_without_a_reader_is_discarded_quietly(words: tuple[str, ...]) -> None:
    with pipe_without_reader() as writer:
        assert run(*words, stdout=writer) == (0, "")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_failed_command_without_a_reader_keeps_its_exit_code(options: tuple[str, ...]) -> None:
    with pipe_without_reader() as writer:
        code, error = run("status", "missing.yaml", *options, stdout=writer)
    assert code == 2
    assert error.startswith("error: JOB_FILE_INVALID: ")
    assert error.count("\n") == 1


def test_full_disk_below_stdout_is_one_error_of_the_storage() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        code, error = run("--version", stdout=full)
    finally:
        os.close(full)
    assert code == 4
    assert error.startswith("error: STORAGE_REFUSED: the output can't be written [path=stdout]; found No space left")
    assert error.count("\n") == 1


def test_closed_standard_streams_do_not_fail_a_command() -> None:
    def close_all() -> None:
        for descriptor in range(3):
            os.close(descriptor)

    assert run("--version", stdout=subprocess.DEVNULL, preexec=close_all) == (0, "")
    assert run("status", "missing.yaml", stdout=subprocess.DEVNULL, preexec=close_all) == (2, "")


def _as_in_a_terminal() -> None:
    """Do not inherit ignored signals, such as SIGINT in the background of a shell, and SIGHUP below `nohup`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def blocking_job(tmp_path: Path) -> Path:
    """Return the path of a job file that a command reads until a writer has opened it and closed it again."""
    path = tmp_path / "job.yaml"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_a_command_quietly_with_130(blocking_job: Path, number: signal.Signals) -> None:
    command = [*_COMMAND, "status", str(blocking_job)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_as_in_a_terminal,  # noqa: PLW1509 - only a call of the system
    ) as process:
        writer = os.open(blocking_job, os.O_WRONLY)  # returns once the command reads
        process.send_signal(number)
        output, _ = process.communicate(timeout=_TIMEOUT_S)
        os.close(writer)
    assert process.returncode == 130
    assert output.startswith("interrupted")
    assert output.count("\n") == 1


def test_interrupted_import_ends_a_command_quietly_with_130(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])}
    ended = subprocess.run(
        [*_COMMAND, "--help"],
        env={**os.environ, **path},
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
        preexec_fn=_as_in_a_terminal,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


def test_ignored_hangup_does_not_end_a_command(blocking_job: Path) -> None:
    command = [*_COMMAND, "status", str(blocking_job)]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),  # noqa: PLW1509 - as in `nohup`
    ) as process:
        writer = os.open(blocking_job, os.O_WRONLY)
        process.send_signal(signal.SIGHUP)
        os.close(writer)
        _, error = process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 2
    assert error.startswith("error: JOB_FILE_INVALID: ")


def test_closed_terminal_ends_a_command_with_130(blocking_job: Path) -> None:
    child, terminal = pty.fork()
    if not child:
        _as_in_a_terminal()
        os.execv(sys.executable, [*_COMMAND, "status", str(blocking_job)])
    writer = os.open(blocking_job, os.O_WRONLY)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    os.close(writer)
    assert os.waitstatus_to_exitcode(status) == 130
