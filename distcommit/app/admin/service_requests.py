"""Pause, resume or trigger a served job from any machine that reaches the store."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.interfaces.clock import Clock
from distcommit.stores.operator.schedule_requests import delete_pause, put_pause, put_trigger, read_requests
from distcommit.stores.state.job_store import JobStore

_EVERY_S = 0.5


class ServiceRequest(StrEnum):
    """A request to the job's service."""

    PAUSE = "pause"
    RESUME = "resume"
    TRIGGER = "trigger"


class ServiceRequestResult(msgspec.Struct, frozen=True):
    """The result of a request.

    Attributes:
        job: name of the job.
        request: the request.
        was_in_effect: whether the job was paused or not paused already, as requested; false for a trigger.
        is_started: whether a service has begun the triggered run within the time to wait.
        paused_by: user who paused the job; empty if the job is not paused.
    """

    job: str
    request: ServiceRequest
    was_in_effect: bool
    is_started: bool
    paused_by: str


def request_service(
    store: JobStore, wish: ServiceRequest, user: str, clock: Clock, wait_s: float = 0
) -> ServiceRequestResult:
    """Pause, resume or trigger a job. A service reads the request at its next check, also one that starts later. Raises
    DistcommitError if the store can't be written or read.

    Args:
        wait_s: seconds to wait for a service to begin a triggered run.
    """
    was_so, is_started = False, False
    match wish:
        case ServiceRequest.PAUSE:
            was_so = not put_pause(store, user, clock.now_ms())
        case ServiceRequest.RESUME:
            was_so = not delete_pause(store)
        case ServiceRequest.TRIGGER:
            is_started = _is_started(store, put_trigger(store, user, clock.now_ms()), clock, wait_s)
    paused = _requests(store)[0]
    return ServiceRequestResult(store.job, wish, was_so, is_started, paused)


def _is_started(store: JobStore, name: str, clock: Clock, wait_s: float) -> bool:
    begun_s = clock.monotonic_s()
    while name in _requests(store)[1]:
        if clock.monotonic_s() - begun_s >= wait_s:
            return False
        clock.sleep(_EVERY_S)
    return True


def _requests(store: JobStore) -> tuple[str, frozenset[str]]:
    try:
        asked = read_requests(store.fs, store.roots.store)
    except OSError as error:
        raise storage_error(error, "the requests to the job's service can't be read", path=store.roots.store) from error
    return asked.paused.requested_by if asked.paused else "", asked.triggers
