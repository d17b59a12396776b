"""What is asked of each peer, and the processes that it is."""

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
"""With more than these processes get a larger heap."""
HEAP = "1g; 3g with more than 500 topics"
_LOOK_S = 0.5


@dataclass(frozen=True)
class Place:
    """Where a peer is let loose: an empty folder of its own, the topics that it reads, and how many seconds it is told
    to let pass between two commits."""

    root: Path
    stream: Stream
    interval_s: int
    broker_proxy: LossyProxy | None = None
    """What can lose answers of a broker, where peers are struck."""

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def heap(self) -> str:
        """Of each of its Java processes, as Java takes it."""
        return "1g" if self.stream.topics <= MANY_TOPICS else "3g"


class Peer(ABC):
    """One system that brings topics to files. `settings`: those that matter, as its documentation has them."""

    name: str
    system: str
    settings: Mapping[str, str]
    one_process = True
    """Whether its coordinator is the process that does all else, too."""
    reads_folders = True
    """Whether there are readers who know only its folders of files."""

    @abstractmethod
    def missing(self) -> str:
        """Why it can't be had here; empty if it can. Fetches what it needs."""

    def prepare(self, place: Place) -> contextlib.AbstractContextManager[None]:
        """What has to be there before the first start, such as a catalog, while it is needed."""
        del place
        return contextlib.nullcontext()

    @abstractmethod
    def command(self, place: Place) -> list[str]:
        """The command of a start, the first one or one that goes on."""

    def started(self, place: Place) -> None:
        """Called after each start: what its processes have to be told besides."""
        del place

    def coordinator(self, place: Place) -> int | None:
        """The process that coordinates the others; none where it is not to be found out just now."""
        del place
        return None

    def environment(self) -> dict[str, str]:
        """Variables to set for it."""
        return {}

    def asked(self) -> tuple[LossyProxy, bytes] | None:
        """Where its commits ask a server: what can lose the answers, and a regular expression of such a request."""
        return None

    @abstractmethod
    def visible(self, place: Place) -> Set[Path]:
        """The Parquet files that its own readers are shown now."""

    def lying(self, place: Place) -> Set[Path]:
        """The Parquet files that readers see who know nothing of the system, only folders."""
        return parquet_files(place.output)

    def commit_begins(self, place: Place) -> int:
        """A number that changes where a commit has begun, or is about to end: when to kill."""
        return len(self.visible(place))

    @abstractmethod
    def keep(self, place: Place) -> object:
        """A copy of how far it says that it is: its checkpoint. It is not running."""

    @abstractmethod
    def put_back(self, place: Place, kept: object) -> None:
        """Puts that copy back, as a restore of a backup would."""

    def refused(self, place: Place) -> list[str]:
        """The command that its documentation names where it refuses to go on from an older checkpoint."""
        del place
        return []


def parquet_files(folder: Path) -> set[Path]:
    """Those below a folder that are not hidden, by a dot or an underscore, as engines take it."""
    found: set[Path] = set()
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        found.update(Path(where, name) for name in names if name.endswith(".parquet") and name[0] not in "._")
    return found


class Running:
    """A peer's processes: what they take, and their end.

    Args:
        peer: which.
        place: where.
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
        """Starts it once more, after it ended by itself: as a supervisor does."""
        self._process.kill()
        self._process = self._launched()
        self._peer.started(self._place)

    def _launched(self) -> ServerProcess:
        return ServerProcess(self._peer.system, self._peer.command(self._place), self.log, self._environment)

    def alive(self) -> bool:
        """Whether its main process lives: the shell that leads the session ends with it."""
        try:
            return bool(psutil.Process(self._process.session_id).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    def cpu_s(self) -> float:
        """Processor seconds of all its processes up to now; of one that has ended, up to half a second less."""
        self._look()
        return sum(self._cpu_s.values())

    def kill(self) -> None:
        """SIGKILL to all its processes at once."""
        self._ended.set()
        while left := list(self._processes()):
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.02)
        self._process.kill()
        self._thread.join()

    def _processes(self) -> Iterator[psutil.Process]:
        """All of its session but the shells that end it with this process."""
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
