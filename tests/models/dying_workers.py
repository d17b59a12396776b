"""Spark's reaction to workers that die while they read a work unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from distcommit.core.errors import ProcessLostError
from distcommit.engine.driver.launch_interface import Result
from distcommit.engine.run_settings import RunSettings
from distcommit.testing.fakes.model_source import WorkerKilled


@dataclass
class DyingLaunch:
    """Launches tasks one after the other, as Spark does: a task whose worker dies is tried again, or its job fails.

    Attributes:
        attempts: attempts at a task before its job fails; 1 for `local[n]`.
        launched: names of the launched functions.
        read_alone: ids of the work units that were read alone.
    """

    attempts: int = 1
    launched: list[str] = field(default_factory=list)
    read_alone: list[str] = field(default_factory=list)

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        self.launched.append(function.__name__)
        if settings.alone:
            self.read_alone.append(settings.alone)
        results = [self._task(function, settings, task) for task in range(tasks)]
        return [msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=kind) for result in results]

    def _task(self, function: Callable[[RunSettings, int], Result], settings: RunSettings, task: int) -> Result:
        for attempt in range(self.attempts):
            try:
                return function(replace(settings, after_death=settings.after_death or attempt > 0), task)
            except WorkerKilled:
                continue
        raise ProcessLostError("a Spark job failed", found="a Python worker died")
