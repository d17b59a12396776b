"""A source that acts when a process with the environment variable `DISTCOMMIT_TEST_ACT` reads its job file."""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import Any

from distcommit.core.errors import SourceError
from tests.integration.parts.named_source import NamedSource


class OwnError(SourceError):
    """An error of a module that the service cannot import; it cannot be pickled either."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("not portable")


ACT = "DISTCOMMIT_TEST_ACT"


class ActingSource(NamedSource):
    def __init__(self) -> None:
        super().__init__(["a"])
        match os.environ.get(ACT):
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                raise SystemExit(3)
            case "hang":
                time.sleep(600)
            case "log":
                logging.getLogger("custom").warning("%s of %s", "a warning", "the process", exc_info=ValueError("why"))
                logging.getLogger("custom").warning("%d of %d", "a", "wrong call")
                print("a line on stdout")  # noqa: T201
            case "raise":
                raise OwnError("what went wrong", todo="start the server")
