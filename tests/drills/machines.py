"""Machine faults under a job: a full disk, a lost permission, a wrong clock."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distcommit.app.demo.broker import MockBroker
from tests.drills.drill import Drilled, KafkaSituation, NotBrokenError, Situation, drilled
from tests.drills.registry import drill
from tests.servers.process import ServerUnavailableError

_TOPICS = ["a", "b"]
_DISK = "48m"
_DAY_S = 86_400


@contextmanager
def _small_disk(at: Path) -> Iterator[int]:
    """Mount a small file system that only a namespace's processes see; yield the id of the process that keeps it."""
    at.mkdir()
    own_user = [] if os.geteuid() == 0 else ["-Ur"]
    script = 'mount -t tmpfs -o size="$0" tmpfs "$1" && echo mounted && exec cat'
    command = ["unshare", *own_user, "-m", "sh", "-c", script, _DISK, str(at)]
    try:
        keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise ServerUnavailableError(f"no file system can be mounted: {error}") from error
    with keeper:
        if keeper.stdout is None or keeper.stdout.readline() != b"mounted\n":
            raise ServerUnavailableError("no file system can be mounted in a namespace")
        yield keeper.pid


def _started(situation: KafkaSituation, brokers: str, **sections: Any) -> None:
    """Run the job once, and give it new records."""
    situation.on(brokers, _TOPICS, commit={"buckets": 2}, **sections)
    for topic in _TOPICS:
        situation.numbers(topic, 10)
    situation.run(0)
    for topic in _TOPICS:
        situation.numbers(topic, 10)


@contextmanager
def _on_small_disk(folder: Path) -> Iterator[tuple[KafkaSituation, Path]]:
    """Yield a job that has run, with its folders on a small file system."""
    disk = folder / "disk"
    with MockBroker.start(dict.fromkeys(_TOPICS, 1)) as broker, _small_disk(disk) as keeper:
        own_user = [] if os.geteuid() == 0 else ["-U", "--preserve-credentials"]
        shell = ["nsenter", "-t", str(keeper), *own_user, "-m", "--"]
        situation = KafkaSituation(folder, shell=shell, seen_at=Path(f"/proc/{keeper}/root{disk}"))
        paths = {name: f"disk/{name}" for name in ("store", "staging", "output")}
        _started(situation, broker.bootstrap_servers, paths=paths)
        yield situation, disk


@drill("FOLDER_NOT_WRITABLE")
def full_disk(folder: Path) -> Drilled:
    with _on_small_disk(folder) as (situation, disk):
        situation.type(f"cat /dev/zero > {disk}/somebodys-dump")
        situation.run(4)

        def free_it() -> None:
            situation.type(f"rm {disk}/somebodys-dump")

        return drilled(situation, "FOLDER_NOT_WRITABLE: .*paths.store is full.*Free space", act=free_it)


@drill("FOLDER_NOT_WRITABLE")
def read_only_mount(folder: Path) -> Drilled:
    """The job's file system is mounted read-only, as a kernel does with a failing disk."""
    with _on_small_disk(folder) as (situation, disk):
        situation.type(f"mount -o remount,ro {disk}")

        def mount_it_writable() -> None:
            situation.type(f"mount -o remount,rw {disk}")

        return drilled(situation, "is mounted read-only at", act=mount_it_writable)


@drill("FOLDER_NOT_WRITABLE")
def permission_lost(folder: Path) -> Drilled:
    """The output is not writable. Root would still write, so that this capability is dropped."""
    shell = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"] if os.geteuid() == 0 else []
    with MockBroker.start(dict.fromkeys(_TOPICS, 1)) as broker:
        situation = KafkaSituation(folder, shell=shell)
        _started(situation, broker.bootstrap_servers)
        folders = [situation.output, *(path for path in situation.output.rglob("*") if path.is_dir())]
        modes = {path: path.stat().st_mode & 0o7777 for path in folders}
        for path in folders:
            path.chmod(0o555)
        situation.run(2)

        def give_it_back() -> None:
            for path, mode in modes.items():
                path.chmod(mode)

        return drilled(situation, "paths.output is not writable.*restore the permission", act=give_it_back)


_CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long ahead(void) { const char *text = getenv("AHEAD_S"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int found = real(id, at);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) at->tv_sec += ahead();
    return found;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    int found = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return found;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


def _wrong_clock(folder: Path) -> Path:
    """Build a library that shifts the clock of the processes that load it by AHEAD_S seconds."""
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(_CLOCK, encoding="utf-8")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ServerUnavailableError(f"a process can't be given another clock without a C compiler: {error}") from error
    return library


class _Arrivals(Situation):
    """Job that reads files of a folder as they arrive."""

    def begin(self, **sections: Any) -> None:
        """Write the job file."""
        (self.folder / "in" / "clicks").mkdir(parents=True)
        paths = [f"{self.folder}/in/{{dataset}}/*.jsonl"]
        source = {"type": "files", "paths": paths, "format": "jsonl", "min_file_age_s": 0}
        self.write(source=source, commit={"buckets": 2}, **sections)

    def arrive(self, name: str, age_s: int = 0) -> None:
        """Add a file of ten records."""
        values = [b'{"file":"%s","n":%d}' % (name.encode(), number) for number in range(10)]
        new = self.folder / "new"
        new.write_bytes(b"\n".join(values) + b"\n")
        os.utime(new, (time.time() - age_s,) * 2)
        new.rename(self.folder / "in" / "clicks" / f"{name}.jsonl")
        self.given.update(values)


@drill("CLOCK_WRONG")
def clock_that_is_wrong(folder: Path) -> Drilled:
    """The clock of the run's machine is a day behind: by it, new files have not settled."""
    library, situation = _wrong_clock(folder), _Arrivals(folder)
    situation.begin()
    situation.arrive("first")
    situation.run(0)
    situation.arrive("second")
    situation.run(0, LD_PRELOAD=str(library), AHEAD_S=str(-_DAY_S))
    if situation.published()[0] == situation.given:
        raise NotBrokenError("the run has read what had not settled by its clock")
    cause = "CLOCK_WRONG: .* the run of epoch .* began 8[56],... s before"
    return drilled(situation, cause)  # the later runs use the right clock, without that library


@drill("NO_RECENT_RUN")
def job_that_is_not_run(folder: Path) -> Drilled:
    """The last run began two hours ago, by its clock."""
    library, situation = _wrong_clock(folder), _Arrivals(folder)
    situation.begin(freshness={"target": "1h"})
    situation.arrive("first", age_s=3 * 3600)
    situation.run(0, LD_PRELOAD=str(library), AHEAD_S="-7200")
    situation.arrive("second")
    return drilled(situation, "no run has begun for 7,... s, longer than the smallest freshness target")
