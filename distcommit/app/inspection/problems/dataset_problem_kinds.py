"""Kinds of problems of single datasets."""

from __future__ import annotations

from distcommit.app.inspection.problems.problem_kind import ProblemKind, Severity

DATASET_QUARANTINED = ProblemKind(
    id="DATASET_QUARANTINED",
    severity=Severity.ERROR,
    title="A dataset is quarantined",
    finding="{names} quarantined: {reason}",
    cause=(
        "A sealed commit cannot be finished: a staged file is missing or changed, a foreign file is at its target, the"
        " target rejected it, `replay.max_attempts` runs failed to replay it, or an operator gave"
        " `distcommit dataset quarantine`."
    ),
    impact="The watermark stays, and no run reads the dataset until it is released. Other datasets continue.",
    action=(
        "Correct the cause, then release the dataset: with retry if the cause is corrected, with abandon if the commit"
        " cannot be finished, with accept if its records are already where they belong. `distcommit dataset steps`"
        " shows the state of each step."
    ),
    command="dataset release {dataset} {way}",
)
STAGED_FILE_MISSING = ProblemKind(
    id="STAGED_FILE_MISSING",
    severity=Severity.ERROR,
    title="A sealed file of a dataset is missing",
    finding="{names} quarantined, because a sealed file is missing: {step}",
    cause="The file is neither where it was staged nor at its target.",
    impact="The watermark stays, and no run reads the dataset until it is released. Other datasets continue.",
    action=(
        "Release the dataset with abandon: what was published of the commit is taken back, and the next run reads its"
        " records again. If you have the file, put it back and release with retry instead."
    ),
    command="dataset release {dataset} {way}",
)
FOREIGN_FILE_AT_TARGET = ProblemKind(
    id="FOREIGN_FILE_AT_TARGET",
    severity=Severity.ERROR,
    title="A foreign file is at a target path",
    finding="{names} quarantined, because another file is at its target: {reason}",
    cause="A file that no run has published is at the path of a file to be published. It is never overwritten.",
    impact="The watermark stays, and no run reads the dataset until it is released. Other datasets continue.",
    action="Move the foreign file away, then release the dataset.",
    command="dataset release {dataset} {way}",
)
ABANDON_UNFINISHED = ProblemKind(
    id="ABANDON_UNFINISHED",
    severity=Severity.ERROR,
    title="Abandoning a dataset has not finished",
    finding="{names} being abandoned: {reason}",
    cause="`distcommit dataset release DATASET abandon` began to take a commit back and died, or a target refused.",
    impact="No run reads the dataset until the command has finished.",
    action="Repair a target that refuses, then give the command again: it resumes where it stopped.",
    command="dataset release {dataset} {way}",
)
DATASET_STOPPED = ProblemKind(
    id="DATASET_STOPPED",
    severity=Severity.ERROR,
    title="Too many runs failed to read a dataset",
    finding="{names} stopped, because too many runs in a row could not read it: {reason}",
    cause="`task.stop_after_failed_runs` runs in a row failed to read the dataset.",
    impact="No run reads the dataset, and each run that would ends with exit code 1.",
    action=(
        "Correct the cause, then release the dataset with retry. To continue behind unreadable records, give"
        " `distcommit dataset set-watermark`; the audit reports what it skips."
    ),
    command="dataset release {dataset} {way}",
)
MORE_DATASETS_WAITING = ProblemKind(
    id="MORE_DATASETS_WAITING",
    severity=Severity.ERROR,
    title="More datasets wait for an operator",
    finding="{count:,} more datasets wait for an operator",
    cause="Datasets are quarantined, stopped or half abandoned for more than twenty different reasons.",
    impact="No run reads these datasets until they are released.",
    action="List the datasets with their reasons, and release each as its reason says.",
    command="status --all",
)
PLAN_FAILED = ProblemKind(
    id="PLAN_FAILED",
    severity=Severity.ERROR,
    title="A dataset could not be planned",
    finding="{dataset} could not be planned: {reason}",
    cause=(
        "The source cannot say what is to be read: a topic is gone or was recreated, offsets have expired, a file was"
        " changed, or the query is another one than before."
    ),
    impact="The dataset is not read. Other datasets continue.",
    action="Correct the cause, then run the job. If the source names another command, give that one.",
    command="run",
    more="{count:,} more datasets could not be planned",
    more_command="runs {epoch}",
)
COMMIT_PENDING = ProblemKind(
    id="COMMIT_PENDING",
    severity=Severity.WARNING,
    title="Sealed commits are not closed",
    finding="{names} sealed and not closed{of}{reason}",
    cause="A run died, or its target failed, between sealing and closing.",
    impact=(
        "The next run replays them before it reads these datasets. A commit that `replay.max_attempts` runs fail to"
        " replay is quarantined; outages do not count."
    ),
    action="Run the job, or replay alone with `distcommit recover` (first with --dry-run).",
    command="recover",
)
COMMIT_HELD = ProblemKind(
    id="COMMIT_HELD",
    severity=Severity.WARNING,
    title="Commits of an undecided run",
    finding="{names} held back with their run, which was not decided",
    cause="With `commit.scope: job` a run sealed datasets and did not decide to publish them.",
    impact="None of these records is visible. The next run drops the commits and reads the records again.",
    action="Run the job.",
    command="run",
)
DECISION_UNKNOWN = ProblemKind(
    id="DECISION_UNKNOWN",
    severity=Severity.ERROR,
    title="It is unknown whether commits were decided",
    finding="{names} held back, and the job log, which records the decision, can't be read",
    cause="With `commit.scope: job` the job log records whether a run decided to publish. It is damaged or away.",
    impact="The commits are neither published nor dropped.",
    action="Repair the job log as FILE_UNREADABLE says. The command shows which of its segments can't be read.",
    command="store log",
)
READ_FAILED = ProblemKind(
    id="READ_FAILED",
    severity=Severity.ERROR,
    title="A dataset could not be read",
    finding="{names} could not be read: {dataset}: {reason}",
    cause=(
        "The last run planned the dataset, and its work unit failed: an outage, records that can't be decoded, or a"
        " failed check. `distcommit dataset list --last-run` shows attempts, rejected records and checks."
    ),
    impact="The dataset was not published. Its watermark stays.",
    action="If it is an outage, run the job again. Otherwise correct the cause first.",
    command="run",
)
WORKER_DIED = ProblemKind(
    id="WORKER_DIED",
    severity=Severity.ERROR,
    title="Reading a dataset kills its worker",
    finding="{names} could not be read: {dataset}: {reason}",
    cause=(
        "A worker died while it read a work unit, and again when the work unit was alone in its task: memory ran out,"
        " or native code crashed. The reason names the work unit and its positions."
    ),
    impact="The dataset was not published, and each run spends a task of its own on it. Other datasets are published.",
    action=(
        "Find the cause in the executor's log. If memory ran out, raise `spark.executor.memoryOverhead`; otherwise"
        " correct the library or the records. Then run the job again. To continue behind the records, give"
        " `distcommit dataset set-watermark`; the audit reports what it skips."
    ),
    command="run",
)
RECORDS_REJECTED = ProblemKind(
    id="RECORDS_REJECTED",
    severity=Severity.ERROR,
    title="A rejected record failed a dataset",
    finding="{names} could not be read: {dataset}: {reason}",
    cause="A construct rejected a record, and `on_rejected` is `fail`.",
    impact="The dataset was not published. Its watermark stays.",
    action=(
        "Write rejected records to the error branch by the printed option, and publish them with"
        " `distcommit dataset reprocess` once the job file or the producer is corrected."
    ),
    command="run --set=on_rejected=divert",
)
NEW_FIELDS_REJECTED = ProblemKind(
    id="NEW_FIELDS_REJECTED",
    severity=Severity.ERROR,
    title="New fields failed a dataset",
    finding="{names} could not be read: {dataset}: {reason}",
    cause="Records have fields that earlier records did not have, and `evolution` is `fail`.",
    impact="The dataset was not published. Its watermark stays.",
    action="If the new fields are intended, let one run accept them by the printed option. Later runs know them.",
    command="run --set={setting}=evolve",
)
FRESHNESS_MISSED = ProblemKind(
    id="FRESHNESS_MISSED",
    severity=Severity.WARNING,
    title="Datasets are behind their freshness target",
    finding="{names} behind the freshness target when the last run began: {dataset}: {reason}",
    cause="The first unread record was older than the target. Only datasets with much to read are measured.",
    impact="Readers see older data than intended.",
    action=(
        "Measure the lag again with the command. If it grows, give the job more slots, raise freshness.records_per_run,"
        " or run more often."
    ),
    command="dataset list --lag --sort=behind",
)
RECORDS_MOSTLY_REJECTED = ProblemKind(
    id="RECORDS_MOSTLY_REJECTED",
    severity=Severity.WARNING,
    title="Most records of a dataset were rejected",
    finding="{dataset}: {rejected:,} of {records:,} records of its newest commit were rejected{others}",
    cause="More than half of at least ten records were rejected. Usually a declared type does not match the records.",
    impact="Rejected records are in the error files, and missing from the output.",
    action=(
        "Read `error_reason` in the error files, and correct the job file or the producer. Then give"
        " `distcommit dataset reprocess`. The command shows the counts of each dataset and construct."
    ),
    command="runs {epoch}",
)
INPUT_PROBLEM_REPORTED = ProblemKind(
    id="INPUT_PROBLEM_REPORTED",
    severity=Severity.WARNING,
    title="The last run found unreadable input",
    finding="the last run could not read {files}: {dataset}: {reason}",
    cause="Source files were skipped or diverted, or they failed their dataset (source.on_unreadable_file).",
    impact="Records of the named files are missing from the output.",
    action="Repair the files. A changed file is read by the next run as a new one. The command lists all named files.",
    command="runs {epoch}",
)
