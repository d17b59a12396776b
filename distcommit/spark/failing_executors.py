"""Notes on attempts that Spark repeated because of their node, without an error of the run."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark import SparkContext

from distcommit.core.errors import reason_text
from distcommit.core.records.run_reasons import Reasons
from distcommit.engine.node_failures import NodeFailedError
from distcommit.spark.job_failure_texts import CAN_NOT_RUN

logger = logging.getLogger(__name__)

_CAUSE = re.compile(rf"^[\w.]*{NodeFailedError.__name__}: (.*)$", re.MULTILINE)
_MOST_ATTEMPTS = 10_000
_TODO = (
    ". Their work was repeated on other executors. To do: check the disks and the packages of this host, and restart"
    " its executors"
)


def describe_repeated(context: SparkContext, tag: str) -> Reasons:
    """Return a note for each executor on which attempts of the newest job with this tag failed because of the node, if
    Spark lists the attempts."""
    failed: dict[tuple[str, str], list[str]] = defaultdict(list)
    with suppress(Py4JError, ConnectionError):
        for host, executor, failure in _failed_attempts(context, tag):
            cause = _CAUSE.search(failure) or CAN_NOT_RUN.search(failure)
            if cause is not None:
                failed[host, executor].append(" ".join(cause[cause.re.groups].split()))
    notes = Reasons()
    for (host, executor), causes in sorted(failed.items()):
        attempts = "a task attempt" if len(causes) == 1 else f"{len(causes)} task attempts"
        text = reason_text(f"{attempts} failed: {causes[0]}", 1000) + _TODO
        logger.warning("host %s, executor %s: %s", host, executor, text)
        notes += Reasons.of(f"host {host}, executor {executor}", "node", text)
    return notes


def _failed_attempts(context: SparkContext, tag: str) -> list[tuple[str, str, str]]:
    scala = context._jsc.sc()
    scala.listenerBus().waitUntilEmpty(1000)  # the store learns of attempts through it
    jobs, failed = [*scala.statusTracker().getJobIdsForTag(tag)], []
    for stage in scala.statusTracker().getJobInfo(max(jobs)).get().stageIds() if jobs else ():
        if not scala.statusStore().lastStageAttempt(stage).numFailedTasks():
            continue  # the usual case: one call instead of one for each attempt
        attempts = scala.statusStore().taskList(stage, 0, _MOST_ATTEMPTS)
        for number in range(attempts.size()):
            attempt = attempts.apply(number)
            if attempt.errorMessage().isDefined():
                failed.append((attempt.host(), attempt.executorId(), attempt.errorMessage().get()))
    return failed
