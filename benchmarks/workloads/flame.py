"""A picture of where processor time goes: this process and the Python processes below it, as py-spy sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distcommit.model.errors import ConfigurationError

_A_SECOND = 100
_PATIENCE_S = 60


@contextmanager
def drawn(picture: Path) -> Iterator[None]:
    """Looks a hundred times a second what is run within, and leaves a flame graph (SVG): the wider, the longer.

    Who waits is not counted; what compiled code does, to the Python function that called it.

    Raises:
        ConfigurationError: if py-spy can't draw it, with what it says.
    """
    py_spy = [str(Path(sys.executable).with_name("py-spy")), "record", "--pid", str(os.getpid()), "--subprocesses"]
    asked = ["--rate", str(_A_SECOND), "--format", "flamegraph", "--output", str(picture)]
    with subprocess.Popen([*py_spy, *asked], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as watching:
        time.sleep(1)  # it has to find them first
        try:
            yield
        finally:
            watching.send_signal(signal.SIGINT)
            said, _ = watching.communicate(timeout=_PATIENCE_S)
    if not picture.exists():
        raise ConfigurationError("py-spy has drawn nothing", found=said.strip(), todo="do what it says, or run as root")
    drawing = picture.read_text()
    for here, shown in ((f"{Path(sys.executable).parent}/", ""), (os.getcwd(), "."), (str(Path.home()), "~")):
        drawing = drawing.replace(here, shown)  # where it was drawn is nobody's business
    picture.write_text(drawing)
