"""The rules that convert the properties of a Gobblin job, section by section."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distcommit.app.migration.gobblin.classes_to_port import port_note, port_of, simple_name
from distcommit.app.migration.gobblin.construct_conversion import put_constructs, put_fork
from distcommit.app.migration.gobblin.file_conversion import FILE_SOURCES, put_files
from distcommit.app.migration.gobblin.job_file_draft import JobFileDraft, choice_of, integer_of, listed, truth
from distcommit.app.migration.gobblin.kafka_conversion import put_kafka
from distcommit.app.migration.gobblin.sink_conversion import put_sinks
from distcommit.app.migration.gobblin.table_conversion import TABLE_SOURCES, put_tables
from distcommit.app.scheduling.cron_and_interval import Cron
from distcommit.app.scheduling.quartz_conversion import from_quartz
from distcommit.core.errors import ConfigurationError


def _source(job: JobFileDraft) -> None:
    source = job.pop("source.class")
    if source is None:
        raise ConfigurationError(
            "the property source.class is missing",
            id="GOBBLIN_JOB_INVALID",
            expected="source.class, the class of the Gobblin source",
            todo="set source.class in the job's file, or give the properties file that sets it with --sysconfig",
        )
    kind = simple_name(source.value)
    if kind in FILE_SOURCES:
        put_files(job, source, kind)
    elif kind in TABLE_SOURCES:
        put_tables(job, source, kind)
    elif job.peek("kafka.brokers") is not None or "Kafka" in kind:
        put_kafka(job, source, kind)
    else:
        for key, value in port_of(source.value).items():
            job.put(source, f"source.{key}", value, port_note(source.value))
    for name, key in {"extract.primary.key.fields": "keys", "extract.delta.fields": "delta_fields"}.items():
        fields = job.pop(name)
        if fields is not None:
            job.put(fields, f"source.extract.{key}", listed(fields))


def _committing(job: JobFileDraft) -> None:
    policy = job.pop("job.commit.policy")
    if policy is not None:
        translated = choice_of(policy, {name: name for name in ("full", "successful", "partial")})
        note = "here of each topic by itself; commit.scope: job is all or nothing" if translated == "full" else ""
        job.put(policy, "commit.policy", translated, note)
    lock = job.pop("job.lock.enabled")
    if lock is not None:
        job.put(lock, "lock.enabled", truth(lock), "" if truth(lock) else "two runs at once are safe also without it")
    semantics = job.pop("gobblin.runtime.delivery.semantics") or job.pop("delivery.semantics")
    if semantics is not None:
        translated = choice_of(semantics, {"AT_LEAST_ONCE": "at_least_once", "EXACTLY_ONCE": "exactly_once"})
        job.put(semantics, "commit.delivery", translated)


def _retrying(job: JobFileDraft) -> None:
    retries, wait = job.pop("task.maxretries"), job.pop("task.retry.intervalinsec")
    if retries is not None:
        job.put(retries, "task.attempts", integer_of(retries) + 1)
    if wait is not None:
        job.put(wait, "task.retry_wait_s", integer_of(wait), "doubled each time, up to a minute")
    enabled, policy = job.pop("workunit.retry.enabled"), job.pop("workunit.retry.policy")
    if job.reads_whole_tables:
        for entry in (enabled, policy):
            job.skip(entry, "needs no setting: each run reads the whole table")
        return
    if policy is not None:
        translated = choice_of(
            policy, {"always": "always", "onfull": "on_full", "onpartial": "on_partial", "never": "never"}
        )
        job.put(policy, "task.retry_across_runs", translated)
    if enabled is not None and truth(enabled) and policy is None:
        job.put(enabled, "task.retry_across_runs", "always")
    elif enabled is not None and not truth(enabled):
        job.put(
            enabled, "task.retry_across_runs", "never", "failed work units are read again together with new records"
        )
    elif enabled is not None:
        job.skip(enabled, "said by workunit.retry.policy")


def _scheduling(job: JobFileDraft) -> None:
    mode = job.pop("task.executionMode")
    if mode is not None and mode.value.upper() == "STREAMING" and job.peek("job.schedule") is None:
        note = "`distcommit schedule serve` repeats runs instead of one that never ends"
        job.put(mode, "schedule", {"interval_s": 60}, note)
    else:
        job.skip(mode, "needs no setting: a run ends when it has read what was there")
    schedule, once = job.pop("job.schedule"), job.pop("job.runonce")
    if once is not None and truth(once):
        job.skip(once, "`distcommit run` runs once")
        job.skip(schedule, "job.runonce is true")
        return
    job.skip(once, "needs no setting: a job with a schedule runs by it")
    if schedule is None:
        return
    try:
        translated = from_quartz(schedule.value)
        if "cron" in translated:
            Cron(str(translated["cron"]))
    except ValueError as error:
        job.skip(schedule, f"set schedule in the job file: {error}")
        return
    note = "times are UTC: Gobblin's were its machine's, see schedule.time_zone" if "cron" in translated else ""
    job.put(schedule, "schedule", translated, note)


def _launching(job: JobFileDraft) -> None:
    kind, threads = job.pop("launcher.type"), job.pop("taskexecutor.threadpool.size")
    tasks = job.pop("mr.job.max.mappers")
    master = choice_of(kind, {"LOCAL": "", "MAPREDUCE": "yarn", "YARN": "yarn"}) if kind is not None else ""
    slots = str(integer_of(threads, least=1)) if threads is not None else "2"
    translated = master or f"local[{slots},4]"
    if kind is not None:
        job.put(
            kind,
            "spark.master",
            translated,
            "executors need this package (conf/docs/guides/cluster.md)" if master else "",
        )
    elif threads is not None:
        job.put(None, "spark.master", translated)
    if threads is not None and not master:
        job.put(threads, "spark.master", translated)
    elif threads is not None:
        job.skip(threads, "how many tasks an executor runs is spark.conf, spark.executor.cores")
    if tasks is not None:
        job.put(tasks, "spark.partitions", integer_of(tasks, least=1))


def _limits(job: JobFileDraft) -> None:
    enabled, kind = job.pop("extract.limit.enabled"), job.pop("extract.limit.type")
    limit = job.pop("extract.limit.timeLimit") or job.pop("extract.limit.time.limit")
    unit = job.pop("extract.limit.timeLimitTimeunit") or job.pop("extract.limit.time.limit.timeunit")
    if enabled is None or not truth(enabled) or kind is None or kind.value.lower() != "time" or limit is None:
        for entry in (enabled, kind, limit, unit):
            reason = "limits are limits.seconds, source.records_per_dataset and source.bytes_per_dataset"
            job.skip(entry, "the limit is off" if enabled is None or not truth(enabled) else reason)
        return
    seconds = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}
    factor = choice_of(unit, seconds) if unit is not None else 1
    for entry in (enabled, kind, limit, unit):
        if entry is not None:
            job.put(entry, "limits.seconds", integer_of(limit, least=1) * factor, "of a run, there of each task")


def _alerting(job: JobFileDraft) -> None:
    names = ("email.host", "email.smtp.port", "email.from", "email.tos")
    enabled, failures = job.pop("email.alert.enabled"), job.pop("job.max.failures")
    host, port, sender, recipients = (job.pop(name) for name in names)
    if enabled is None or not truth(enabled):
        for entry in (failures, enabled, host, port, sender, recipients):
            job.skip(entry, "alerts are off (email.alert.enabled)")
        return
    if host is None or sender is None or recipients is None:
        missing = [name for name, entry in zip(names, (host, port, sender, recipients), strict=True) if entry is None]
        raise enabled.wrong(
            "properties of the e-mail alert are missing",
            expected=", ".join(name for name in missing if name != "email.smtp.port"),
            todo="set them in the job's file, or give the properties file that sets them with --sysconfig",
        )
    mail: dict[str, Any] = {"host": host.value, "sender": sender.value, "recipients": listed(recipients)}
    if port is not None:
        mail["port"] = integer_of(port, least=1)
    for entry in (enabled, host, port, sender, recipients):
        if entry is not None:
            job.put(entry, "alerts.emails", [mail])
    after = integer_of(failures, least=1) if failures is not None else 1
    job.put(failures, "alerts.after_failed_runs", after)


RULES: tuple[Callable[[JobFileDraft], None], ...] = (
    *(_source, put_fork, put_constructs, put_sinks),
    *(_committing, _retrying, _scheduling, _launching, _limits, _alerting),
)
"""All rules, in the order of the job file's sections."""
