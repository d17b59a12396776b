"""Interface of a peer, and its processes."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.peers.records import Stream
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.process import ServerProcess

MANY_TOPICS = 500
"""With more topics than this, processes get a larger heap."""
HEAP = "1g; 3g with more than 500 topics"
_LOOK_S = 0.5


@dataclass(frozen=True)
class Place:
    """Place of a peer: an empty folder, the topics that it reads, and the seconds between two commits."""

    root: Path
    stream: Stream
    interval_s: int
    broker_proxy: LossyProxy | None = None
    """Proxy that can lose answers of a broker, for struck peers."""

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def heap(self) -> str:
        """Return the heap of each of its Java processes, in Java's form."""
        return "1g" if self.stream.topics <= MANY_TOPICS else "3g"


class Peer(ABC):
    """A system that writes topics to files. `settings`: the relevant ones, as in its documentation."""

    name: str
    system: str
    settings: Mapping[str, str]
    one_process = True
    """Whether its coordinator is also the process that does all other work."""
    reads_folders = True
    """Whether some readers know only its folders of files."""

    @abstractmethod
    def missing(self) -> str:
        """Return why it is unavailable here; empty if it is available. Downloads its parts."""

    def prepare(self, place: Place) -> contextlib.AbstractContextManager[None]:
        """Yield while the prerequisites of the first start, such as a catalog, exist."""
        del place
        return contextlib.nullcontext()

    @abstractmethod
    def command(self, place: Place) -> list[str]:
        """Return the command of a start, the first one or a restart."""

    def started(self, place: Place) -> None:
        """Configure its processes after each start."""
        del place

    def coordinator(self, place: Place) -> int | None:
        """Return the process that coordinates the others; none if it is unknown just now."""
        del place
        return None

    def environment(self) -> dict[str, str]:
        """Return additional environment variables."""
        return {}

    def asked(self) -> tuple[LossyProxy, bytes] | None:
        """Return the proxy in front of the server that its commits use, and a regular expression of such a request."""
        return None

    @abstractmethod
    def visible(self, place: Place) -> Set[Path]:
        """Return the Parquet files that its own readers see now."""

    def lying(self, place: Place) -> Set[Path]:
        """Return the Parquet files that readers of plain folders see."""
        return parquet_files(place.output)

    def commit_begins(self, place: Place) -> int:
        """Return a number that changes when a commit has begun, or is about to end: the moment to kill."""
        return len(self.visible(place))

    @abstractmethod
    def keep(self, place: Place) -> object:
        """Return a copy of its stored position, such as its checkpoint. It is not running."""

    @abstractmethod
    def put_back(self, place: Place, kept: object) -> None:
        """Restore that copy, as from a backup."""

    def refused(self, place: Place) -> list[str]:
        """Return the command that its documentation names if it refuses to resume from an older checkpoint."""
        del place
        return []


def parquet_files(folder: Path) -> set[Path]:
    """Return those below a folder that are not hidden, by a dot or an underscore, as engines treat it."""
    files: set[Path] = set()
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        files.update(Path(where, name) for name in names if name.endswith(".parquet") and name[0] not in "._")
    return files


class Running:
    """A peer's running processes: their costs, and their end.

    Args:
        peer: the peer.
        place: its place.
        environment: variables to set besides its own.
    """

    def __init__(self, peer: Peer, place: Place, environment: Mapping[str, str] | None = None) -> None:
        self.log = place.root / f"{peer.name}.log"
        self._peer, self._place = peer, place
        self._environment = peer.environment() | dict(environment or {})
        self._process = self._launched()
        self._cpu_s: dict[tuple[int, float], float] = {}
        self.peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        peer.started(place)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start_again(self) -> None:
        """Start it again after it ended by itself, as a supervisor does."""
        self._process.kill()
        self._process = self._launched()
        self._peer.started(self._place)

    def _launched(self) -> ServerProcess:
        return ServerProcess(self._peer.system, self._peer.command(self._place), self.log, self._environment)

    def alive(self) -> bool:
        """Return whether its main process lives: the shell that leads the session ends with it."""
        try:
            return bool(psutil.Process(self._process.session_id).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    def cpu_s(self) -> float:
        """Return the processor seconds of all its processes so far; of an ended one up to half a second less."""
        self._look()
        return sum(self._cpu_s.values())

    def kill(self) -> None:
        """Kill all its processes at once by SIGKILL."""
        self._ended.set()
        while remaining := list(self._processes()):
            for process in remaining:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.02)
        self._process.kill()
        self._thread.join()

    def _processes(self) -> Iterator[psutil.Process]:
        """Return all processes of its session except the shells that end it with this process."""
        session = self._process.session_id
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                    if process.pid == session or (process.ppid() == session and process.name() == "sh"):
                        continue
                    yield process

    def _sample(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        resident = 0
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                self._cpu_s[process.pid, process.create_time()] = times.user + times.system
                resident += process.memory_info().rss
        self.peak_bytes = max(self.peak_bytes, resident)
