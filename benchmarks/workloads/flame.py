"""Flame graphs of processor time: this process and the Python processes below it, by py-spy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distcommit.core.errors import ConfigurationError
from distcommit.core.support.install_command import install_command

_A_SECOND = 100
_PATIENCE_S = 60


@contextmanager
def drawn(picture: Path) -> Iterator[None]:
    """Sample the block a hundred times a second, and draw a flame graph (SVG): the wider, the longer.

    Waiting threads do not count; time in compiled code counts for the Python function that called it.

    Raises:
        ConfigurationError: if py-spy is missing, or cannot draw it, with its message.
    """
    py_spy = [str(Path(sys.executable).with_name("py-spy")), "record", "--pid", str(os.getpid()), "--subprocesses"]
    asked = ["--rate", str(_A_SECOND), "--format", "flamegraph", "--output", str(picture)]
    try:
        watching = subprocess.Popen([*py_spy, *asked], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError as error:
        raise ConfigurationError("py-spy is not installed", todo=install_command("bench")) from error
    output = ""
    with watching:
        assert watching.stdout is not None
        for line in watching.stdout:
            output += line
            if "Sampling process" in line:  # it has attached to the processes
                break
        try:
            yield
        finally:
            watching.send_signal(signal.SIGINT)
            output += watching.communicate(timeout=_PATIENCE_S)[0]
    if not picture.exists():
        raise ConfigurationError(
            "py-spy did not draw a picture", found=output.strip(), todo="correct the reported cause, or run as root"
        )
    drawing = picture.read_text()
    for here, shown in ((f"{Path(sys.executable).parent}/", ""), (os.getcwd(), "."), (str(Path.home()), "~")):
        drawing = drawing.replace(here, shown)  # the local path must not be in the picture
    picture.write_text(drawing)
