"""The record of a stuck work unit, written by the process that kills the worker.

It is a failed attempt with its own id and without files, so the killed attempt's files are swept as usual. If the
worker finishes before it is killed, its success counts.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass

from msgspec.structs import replace

from distcommit.core.errors import StuckError, error_text
from distcommit.core.work_units import TaskState
from distcommit.stores.state.task_states import TaskStateWriter


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt of a stuck work unit, to be recorded.

    Attributes:
        writer: writer to the task states of the job.
        bucket: the bucket of the work unit's dataset.
        state: the failed attempt to record.
    """

    writer: TaskStateWriter
    bucket: int
    state: TaskState

    def put(self) -> None:
        for result in self.writer.append({self.bucket: [self.state]}).values():
            if isinstance(result, OSError):
                raise result


def failure_of(store: bytes, work_unit: bytes, construct: str) -> Failure:
    """Return the failure of a stuck work unit.

    Args:
        store: pickled redaction and writer.
        work_unit: pickled bucket and state.
    """
    _, writer = pickle.loads(store)
    bucket, state = pickle.loads(work_unit)
    error = StuckError(
        "a construct does not return from native code, and its worker was killed",
        dataset=state.dataset_urn,
        work_unit=state.work_unit_id,
        construct=construct,
        expected="an end within limits.construct_seconds",
        found="no end after twice that time",
        todo="correct the construct or the records, or raise the limit; nothing of the work unit is lost",
    )
    failed = replace(state, error=error_text(error), finished_ms=time.time_ns() // 1_000_000)
    return Failure(writer, bucket, failed)
