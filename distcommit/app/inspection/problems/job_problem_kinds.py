"""Kinds of problems of a whole job: its folders, store, lock and runs."""

from __future__ import annotations

from distcommit.app.inspection.problems.problem_kind import ProblemKind, Severity

FOLDER_NOT_WRITABLE = ProblemKind(
    id="FOLDER_NOT_WRITABLE",
    severity=Severity.CRITICAL,
    title="A folder of the job cannot be written",
    finding="a folder of the job cannot be written: {fault}",
    cause=(
        "The store, staging or output folder on this machine is full, mounted read-only or missing, or this user has no"
        " write permission."
    ),
    impact="Runs fail. No data is lost, and watermarks do not move.",
    action="Free space, mount the file system writable, or restore the permission; then run the job.",
    command="run",
)
LOCK_STUCK = ProblemKind(
    id="LOCK_STUCK",
    severity=Severity.CRITICAL,
    title="The job lock is not renewed",
    finding="{holder} holds the job lock: {reason}",
    cause="The process that holds the job lock is dead, frozen, or cut off from the store.",
    impact="No other run can begin until the lease has expired.",
    action=(
        "Cancel the run: its lock is taken away at once, and it ends should it wake. A rebuild that wakes continues"
        " until the next rebuild fences it."
    ),
    command="cancel",
)
RUN_STALLED = ProblemKind(
    id="RUN_STALLED",
    severity=Severity.CRITICAL,
    title="A run makes no progress",
    finding="the run of epoch {epoch} has made no progress for {seconds:,.0f} s although its driver{on} is alive",
    cause=(
        "The driver renews its lease, but no task has finished a batch, sealed or closed anything, and no phase has"
        " ended, for 15 minutes and for longer than the median duration of the recorded runs. Both times come from the"
        " store's file system, so clocks of machines do not matter. On S3, which reports no times of folders, no"
        " stall is detected."
    ),
    impact="Nothing more is published, and no other run of the job can begin.",
    action=(
        "If no source or target is known to be slow, cancel the run and start it again; sealed commits are replayed."
        " If the driver does not react, kill it."
    ),
    command="cancel",
)
RUN_NOT_STARTED = ProblemKind(
    id="RUN_NOT_STARTED",
    severity=Severity.CRITICAL,
    title="A run waits for Spark",
    finding="a run has had no epoch for {seconds:,.0f} s: {reason} is alive, but Spark has not started the run",
    cause=(
        "The driver has waited for 15 minutes, by its own clock, for Spark (a cluster without free resources, a master"
        " that does not answer) or for the storage."
    ),
    impact="No other run of the job can begin. The waiting run has sealed nothing.",
    action=(
        "If Spark will not start it, kill that process and run the job again: `distcommit cancel` cannot end a run"
        " that has no epoch."
    ),
    command="run",
)
REBUILD_STALLED = ProblemKind(
    id="REBUILD_STALLED",
    severity=Severity.CRITICAL,
    title="A rebuild makes no progress",
    finding="the rebuild of epoch {epoch} has made no progress for {seconds:,.0f} s although {reason} is alive",
    cause="`distcommit store rebuild` holds the lock and waits for the storage, or for a target whose ledger it reads.",
    impact="No run can begin until a rebuild has finished.",
    action=(
        "If the storage or target will not answer, kill that process, then rebuild again with the same options:"
        " `distcommit cancel` ends only runs."
    ),
    command="store rebuild",
)
REBUCKET_STALLED = ProblemKind(
    id="REBUCKET_STALLED",
    severity=Severity.CRITICAL,
    title="A move to other buckets makes no progress",
    finding="the move to {buckets} buckets has made no progress for {seconds:,.0f} s although {reason} is alive",
    cause="`distcommit store rebucket` holds the lock and waits for the storage.",
    impact="No run can begin until the move has finished.",
    action=(
        "If the storage will not answer, kill that process, then give the command again: it resumes the move."
        " `distcommit cancel` ends only runs."
    ),
    command="store rebucket --buckets={buckets}",
)
REBUCKET_UNFINISHED = ProblemKind(
    id="REBUCKET_UNFINISHED",
    severity=Severity.CRITICAL,
    title="A move to other buckets is unfinished",
    finding="the move to {buckets} buckets is not finished",
    cause="`distcommit store rebucket` died.",
    impact="No run can begin, and nothing else can change the job.",
    action="Finish the move, from any machine. The command can be repeated.",
    command="store rebucket --buckets={buckets}",
)
STORE_OUTDATED = ProblemKind(
    id="STORE_OUTDATED",
    severity=Severity.CRITICAL,
    title="The store is older than its output",
    finding="the store is older than its output: {evidence}",
    cause=(
        "The output has marks of runs that the store does not know: the store was restored from an older copy, or a"
        " rebuild has not finished."
    ),
    impact="No run begins, because it would publish the same records again.",
    action="Restore the newest store. If there is none, or if a rebuild has not finished, rebuild the store.",
    command="store rebuild",
)
OUTPUT_OUTDATED = ProblemKind(
    id="OUTPUT_OUTDATED",
    severity=Severity.CRITICAL,
    title="The output is older than the store",
    finding="the output is older than the store, or is another folder: {evidence}",
    cause=(
        "Runs that the store knows have left no mark in the output: `paths.output` was changed, its disk is not"
        " mounted, or it was restored from an older copy."
    ),
    impact="No run begins, because it would not publish the missing records again.",
    action=(
        "Correct paths.output, or restore the newest output with its folder .distcommit. If it is lost, rebuild with"
        " --keep-watermarks and set watermarks back: what is missing is published again only from there."
    ),
    command="store rebuild --keep-watermarks --dry-run",
)
STAGING_REPLACED = ProblemKind(
    id="STAGING_REPLACED",
    severity=Severity.CRITICAL,
    title="Staging is another folder",
    finding="pending commits were staged in another folder than paths.staging names",
    cause="The disk of the staging folder is not mounted, `paths.staging` was changed, or the folder was emptied.",
    impact="No run begins, because it would treat the staged files as lost.",
    action=(
        "Mount its disk, or correct paths.staging. If the files are lost, rebuild with --keep-watermarks; datasets"
        " whose pending files are lost are then quarantined."
    ),
    command="store rebuild --keep-watermarks --dry-run",
)
FILE_UNREADABLE = ProblemKind(
    id="FILE_UNREADABLE",
    severity=Severity.ERROR,
    title="A file of the store cannot be read",
    finding="{name} can't be read: {reason}",
    cause=(
        "The storage is away; or a log, the settings record or a folder's claim is damaged; or a log has lost its"
        " newest segments, for example because its folder was restored from a copy."
    ),
    impact=(
        "Datasets of an unreadable bucket log are left alone, and the others continue. Without the job log, the"
        " settings record or the claims no run begins. `status` ends with exit code 5."
    ),
    action=(
        "Wait if the storage is away. Otherwise restore the file from a backup; if there is none, rebuild it from the"
        " published files while no run is alive (first with --dry-run)."
    ),
    command="store rebuild",
)
JOB_BLOCKED_BY_DATASETS = ProblemKind(
    id="JOB_BLOCKED_BY_DATASETS",
    severity=Severity.CRITICAL,
    title="Datasets block an all-or-nothing job",
    finding="the next run publishes nothing: the job publishes all datasets or none, and {names} not released",
    cause="With `commit.scope: job` a quarantined, stopped or half abandoned dataset blocks all others.",
    impact="The next run publishes nothing.",
    action="Release the datasets. To release them in different ways, release each by its name.",
    command="dataset release --all retry",
)
JOB_BLOCKED_BY_LOG = ProblemKind(
    id="JOB_BLOCKED_BY_LOG",
    severity=Severity.CRITICAL,
    title="A bucket log blocks an all-or-nothing job",
    finding=(
        "the next run publishes nothing: the job publishes all datasets or none, and the log of {names} can't be read"
    ),
    cause="With `commit.scope: job` the datasets of an unreadable bucket log cannot be planned, and block all others.",
    impact="The next run publishes nothing.",
    action="Repair the log as FILE_UNREADABLE says.",
    command="store log",
)
JOB_HELD_BACK = ProblemKind(
    id="JOB_HELD_BACK",
    severity=Severity.ERROR,
    title="The last run published nothing",
    finding="the last run published nothing, because of {subject}: {failure}: {reason}",
    cause="With `commit.scope: job` one dataset that cannot be published holds all others back.",
    impact="No record of the last run is visible.",
    action="Correct the cause, then run the job. `distcommit runs JOB.yaml EPOCH` lists all reasons.",
    command="run",
    more="{count:,} more datasets held the last run back",
    more_command="runs {epoch}",
)
CLOCK_WRONG = ProblemKind(
    id="CLOCK_WRONG",
    severity=Severity.WARNING,
    title="The clock of a machine is wrong",
    finding="the clock of {host} is wrong: {evidence}",
    cause="The newest run began more than a minute in the future, or before the run that preceded it.",
    impact=(
        "Exactly-once does not depend on clocks. Sources that read by time (settled files, lookbacks) may be delayed,"
        " and `distcommit dataset expire` uses the clock."
    ),
    action="Set the clock, then run the job.",
    command="run",
)
RUN_WITHOUT_RECORD = ProblemKind(
    id="RUN_WITHOUT_RECORD",
    severity=Severity.ERROR,
    title="A run began and left no record",
    finding="the run of epoch {epoch} began and has left no record",
    cause="The run took its epoch and then died, or could not write to the store.",
    impact="The run has published nothing.",
    action="Run the job again.",
    command="run",
)
RUN_RECORD_UNREADABLE = ProblemKind(
    id="RUN_RECORD_UNREADABLE",
    severity=Severity.WARNING,
    title="The record of a run cannot be read",
    finding="the record of the run of epoch {epoch}{others} can't be read: {reason}",
    cause="The record is damaged, or a newer version has written it.",
    impact="The outcome of that run is unknown. Data and later runs do not depend on it.",
    action="Set the damaged record aside.",
    command="store repair",
)
RUN_FAILED = ProblemKind(
    id="RUN_FAILED",
    severity=Severity.ERROR,
    title="The last run failed",
    finding="{runs} failed: {reason}",
    cause="The newest run could not continue, or not all of its datasets were committed.",
    impact="Watermarks of datasets that were not committed stay where they were.",
    action="Correct the cause, then run the job. `distcommit runs JOB.yaml EPOCH` shows the phases and all reasons.",
    command="run",
)
RUN_DIED = ProblemKind(
    id="RUN_DIED",
    severity=Severity.ERROR,
    title="The driver of the last run died",
    finding="{runs} failed: {reason}",
    cause=(
        "The driver was killed, ran out of memory, or its machine is gone. This is detected at once on its own machine,"
        " elsewhere when its lease has expired (`lock.lease_ttl_s`)."
    ),
    impact="Nothing is lost: the next run replays the sealed commits and reads everything else again.",
    action="Run the job again.",
    command="run",
)
RECORDS_LOST = ProblemKind(
    id="RECORDS_LOST",
    severity=Severity.WARNING,
    title="The source deleted records before they were read",
    finding=(
        "the run of epoch {epoch} skipped {positions:,} positions whose records the source had deleted before they were"
        " read"
    ),
    cause="The source's retention passed the watermark, and `source.expired_offsets` lets runs continue behind it.",
    impact="These records are not in the output. The run ended with exit code 7; `distcommit audit` lists the ranges.",
    action=(
        "Run the job: the next run without a loss clears this. To prevent it, run more often, or have the source keep"
        " records for longer."
    ),
    command="run",
)
NO_RECENT_RUN = ProblemKind(
    id="NO_RECENT_RUN",
    severity=Severity.ERROR,
    title="No run has begun for too long",
    finding="no run has begun for {seconds:,.0f} s, longer than the smallest freshness target, {target:g} s",
    cause="The service or scheduler of the job is not alive, or all of its slots are taken.",
    impact="Datasets fall behind their freshness targets.",
    action=(
        "Start the service or scheduler; if its slots are taken, give `distcommit schedule serve` a larger --at-once."
        " The command runs the job once."
    ),
    command="run",
)
JOB_PAUSED = ProblemKind(
    id="JOB_PAUSED",
    severity=Severity.WARNING,
    title="Scheduled runs are suspended",
    finding="scheduled runs were suspended by {who}",
    cause="An operator gave `distcommit schedule pause`.",
    impact="No service runs the job by its schedule. `distcommit run` and `trigger` still do.",
    action="Resume the schedule when the job may continue.",
    command="schedule resume",
)
