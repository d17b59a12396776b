"""The reasons why a property of Gobblin has no setting."""

from __future__ import annotations

import re

_SECRET = "is a secret, which is not copied: write it as ${VARIABLE} or ${file:PATH}"
_NOT_NEEDED = "needs no setting"
_REASONS: tuple[tuple[str, str], ...] = (
    (r"email\.(password|user)", "is a secret, or goes with one: alerts.emails, with tls"),
    (r".*(password|secret|jaas|private\.key|encrypt_key).*|encrypt\..*", _SECRET),
    (r"job\.(group|description)", "is kept as a comment"),
    (r"job\.disabled", "`distcommit schedule pause job.yaml` keeps services from it; what runs it otherwise is yours"),
    (
        r"job\.class|job\.jars|job\.(hdfs|local)\..*|framework\.jars",
        "classes of yours: conf/docs/guides/custom-parts.md",
    ),
    (r"job\.lock\..*|zookeeper\..*", "the lock is in paths.store; lock.lease_ttl_s is how long a dead run's holds"),
    (r"job\.template", "the template is not included: convert with it as --sysconfig"),
    (r"gobblin\.template\..*", f"{_NOT_NEEDED}: it describes the template to Gobblin"),
    (r"jobconf\..*", "`distcommit schedule serve FOLDER` takes each job file of a folder"),
    (r"type", "is Azkaban's: whatever runs `distcommit run` schedules the job"),
    (r"extract\.namespace", "datasets have no namespace: a dataset is a topic, a table or a folder of files"),
    (r"extract\.table\.name", "a dataset is an extract of kafka, its topic; its folder in paths.output is named so"),
    (r"extract\.table\.type", "of Kafka it is append_only; sources sql and spark have snapshots"),
    (r"extract\.limit\..*|extract\.pull\.limit", "limits are limits.seconds and source.records_per_dataset"),
    (r"extract\..*", "is of a query's extract, which source.table_type describes; a Kafka source has none"),
    (r"topics\.move\.to\.latest\.offset", "`distcommit dataset set-watermark`, once"),
    (
        r"kafka\.(workunit|partition).*|mr\.target\.mapper\.size",
        "source.records_per_work_unit sets the size of work units",
    ),
    (r"gobblin\.streaming\.kafka\.topic\..*", f"{_NOT_NEEDED}: records come with key and value as bytes"),
    (r"streaming\.watermark.*", f"{_NOT_NEEDED}: positions are in paths.store, and move with the commit"),
    (
        r"source\.kafka\..*|gobblin\.kafka\..*|kafka\..*",
        "the client's settings are source.client, by librdkafka's names",
    ),
    (r"source\.conn\.driver", f"{_NOT_NEEDED}: the driver follows from the source's URL"),
    (r"source\.conn\.known\.hosts", "the known hosts are those of the machine's user"),
    (r"source\.conn\..*", "driver options go behind `?` of source.url"),
    (
        r"source\.timezone|source\.querybased\.(hour\.column|hourly\.extract)",
        f"{_NOT_NEEDED}: a column's own times count",
    ),
    (
        r"source\.querybased\.(start\.value|is\.watermark\.override)",
        "a first run begins at source.start; `distcommit dataset set-watermark` sets another position",
    ),
    (r"source\.querybased\.end\.value", "a table is read to its end: source.overrides.NAME.where limits the rows"),
    (r"source\.querybased\.skip\..*", f"{_NOT_NEEDED}: rows are counted as they are read"),
    (r"source\.querybased\.is\..*", f"{_NOT_NEEDED}: the database's driver decides, and unknown columns are errors"),
    (
        r"source\.querybased\.partition\.interval|source\.max\.number\.of\.partitions",
        "source.records_per_work_unit or source.bytes_per_work_unit sets the size of work units",
    ),
    (r"date\.partitioned\.source\..*", "`distcommit dataset set-watermark --new` skips files before a time"),
    (r"filebased\.report\..*", f"{_NOT_NEEDED}: tasks report their progress by themselves"),
    (r"source\.filebased\.preserve\.file\.name", "the job names its files: its proofs rest on it"),
    (r"source\.schema|avro\.schema\..*", "records have their own columns; the converters `schema` and `cast` fix them"),
    (r"source\..*", "is of the source's class: an option of your own one (source.options)"),
    (
        r"converter\.avro\.(date|timestamp|time)\.format",
        f"{_NOT_NEEDED} for columns with types; else the converter `parse`",
    ),
    (r"converter\.sample\..*", "no converter samples: write one in Python, conf/docs/guides/custom-parts.md"),
    (r"converter\..*", "converters of the job file: conf/docs/guides/transforms.md"),
    (r"serde\..*", f"{_NOT_NEEDED}: sink.format chooses what is written"),
    (r"fork\.record\.queue\..*", f"{_NOT_NEEDED}: a task sends batches to its branches without a queue"),
    (r"fork\..*", "fork of the job file: conf/docs/guides/forks.md"),
    (r"qualitychecker\.row\.err\.file", "rejected records are below _rejected in paths.output (on_rejected)"),
    (r"qualitychecker\.row\..*", "row_checkers of the job file; for rejected records: on_rejected"),
    (r"writer\.file\..*|data\.publisher\.final\.name", "the job names its files and folders: its proofs rest on it"),
    (r"writer\.(buffer\.size|deflate\.level)", f"{_NOT_NEEDED}: writers choose buffers and levels by themselves"),
    (r"mr\.job\.root\.dir", "paths.staging has what is not published yet"),
    (r"writer\.partition\..*", "sink.partition_by names the folders"),
    (r"writer\.kafka\..*", "sink.client, by librdkafka's names"),
    (
        r"writer\.jdbc\..*|writer\..*staging\.table",
        f"{_NOT_NEEDED}: rows are written in transactions, without a staging table",
    ),
    (r"jdbc\.publisher\..*", f"{_NOT_NEEDED}: the driver follows from sink.url"),
    (r"data\.publisher\.replace\.final\.dir", "sink.publish: replace or replace_partitions; of Kafka it is append"),
    (r"data\.publisher\.final\.dir", "files of a branch are below paths.output, in DATASET/BRANCH"),
    (r"(writer|data\.publisher)\..*(permissions|group|user)", "sink.access: mode, owner and group"),
    (r"writer\.output\.dir", f"{_NOT_NEEDED}: staged files are published by one rename"),
    (r"(writer|data\.publisher)\..*fs\.uri", "all branches are on the file system of paths"),
    (
        r"writer\..*|simplewriter\..*|data\.publisher\..*",
        "sink of the job file: conf/docs/reference/configuration.md#sinks",
    ),
    (r"metrics\..*", "`distcommit runs`, `report` and `status --json` report on runs"),
    (r"email\..*|failure\.emails", "alerts of the job file report failed runs and quarantine"),
    (
        r"gobblin\.runtime\.commit\.sequence\..*",
        "commit sequences are in paths.store, with all else that the job knows",
    ),
    (r"mr\..*|yarn\..*|gobblin\.yarn\..*|hadoop\..*|mapreduce\..*", "spark.conf, by Spark's names"),
    (r"gobblin\.copy\..*|gobblin\.dataset\..*|distcp\..*", "files are read and written, not copied as they are"),
    (r"task.*|cleanup\..*|state\.store\..*", f"{_NOT_NEEDED}: runs sweep, track and store by themselves"),
)
"""Reasons by a pattern of the property's name. The first matching pattern applies."""

UNKNOWN = "nothing here is known for it"


def reason_of(name: str) -> str:
    """Return why a property has no setting. Properties of a branch (`.0`) have the reasons of the job's."""
    base = re.sub(r"\.\d+$", "", name)
    return next((reason for pattern, reason in _REASONS if re.fullmatch(pattern, base)), UNKNOWN)
