"""Another arm beside a process that writes data to the same disk, as ingest does beside a commit."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.runner import Arm, Parts
from benchmarks.workloads.tree import Shape

_FILE_BYTES, _FILES_KEPT = 1 << 20, 64


class WhileWriting(Arm):
    """The arm, beside a process that writes files of 1 MiB, at most that many MiB in a second."""

    def __init__(self, arm: Arm, mib_per_second: int = 50) -> None:
        self._arm, self._rate = arm, mib_per_second
        self.name = f"{arm.name}_while_writing"

    def missing(self) -> str:
        return self._arm.missing()

    def publish(self, shape: Shape, root: Path) -> Parts:
        context = multiprocessing.get_context("spawn")
        ended = context.Event()
        writer = context.Process(target=_write, args=(f"{root}/noise", self._rate, ended))
        writer.start()
        try:
            return self._arm.publish(shape, root)
        finally:
            ended.set()
            writer.join()


def _write(folder: str, mib_per_second: int, ended: Event) -> None:
    os.makedirs(folder)
    data, number = os.urandom(_FILE_BYTES), 0
    while not ended.wait(max(0.0, 1 / mib_per_second)):
        with open(f"{folder}/{number % _FILES_KEPT}", "wb") as file:
            file.write(data)
        number += 1
