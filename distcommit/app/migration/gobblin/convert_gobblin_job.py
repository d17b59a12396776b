"""Convert the properties of a Gobblin job to a job file."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path

import msgspec
import yaml

from distcommit.app.job_file.load_job_file import parse_config
from distcommit.app.migration.gobblin.conversion_rules import RULES
from distcommit.app.migration.gobblin.folder_conversion import put_folders
from distcommit.app.migration.gobblin.job_file_draft import JobFileDraft, TranslatedProperty, UntranslatedProperty
from distcommit.app.migration.gobblin.read_properties import read_properties
from distcommit.core.errors import ConfigurationError, printable

_WIDTH = 118
_SECRET = "is a secret, which is not copied: write it as ${VARIABLE} or ${file:PATH}"
_NOT_NEEDED = "needs no setting"
_WHY: tuple[tuple[str, str], ...] = (
    (r"email\.(password|user)", "is a secret, or goes with one: alerts.emails, with tls"),
    (r".*(password|secret|jaas).*|encrypt\..*", _SECRET),
    (r"job\.(group|description)", "is kept as a comment"),
    (r"job\.disabled", "`distcommit schedule pause job.yaml` keeps services from it; what runs it otherwise is yours"),
    (
        r"job\.class|job\.jars|job\.(hdfs|local)\..*|framework\.jars",
        "classes of yours: conf/docs/guides/custom-parts.md",
    ),
    (r"job\.lock\..*|zookeeper\..*", "the lock is in paths.store; lock.lease_ttl_s is how long a dead run's holds"),
    (r"job\.template", "the template is not included: convert with it as --sysconfig"),
    (r"jobconf\..*", "`distcommit schedule serve FOLDER` takes each job file of a folder"),
    (
        r"extract\.(namespace|table\.name)",
        "a dataset is an extract of kafka, its topic; its folder in paths.output is named so",
    ),
    (
        r"extract\.table\.type",
        "of Kafka it is append_only; sources sql and spark have snapshots",
    ),
    (r"extract\.limit\..*|extract\.pull\.limit", "limits are limits.seconds and source.records_per_dataset"),
    (r"extract\..*", "is of a query's extract; a Kafka source has none"),
    (r"topics\.move\.to\.latest\.offset", "`distcommit dataset set-watermark`, once"),
    (
        r"kafka\.(workunit|partition).*|mr\.target\.mapper\.size",
        "source.records_per_work_unit sets the size of work units",
    ),
    (
        r"source\.kafka\..*|gobblin\.kafka\..*|kafka\..*",
        "the client's settings are source.client, by librdkafka's names",
    ),
    (r"source\..*", "is of a source's class; those of the Kafka source are source.* in the job file"),
    (r"converter\..*", "converters of the job file: conf/docs/guides/transforms.md"),
    (r"fork\..*", "fork of the job file: conf/docs/guides/forks.md"),
    (r"qualitychecker\.row\..*", "row_checkers of the job file; for rejected records: on_rejected"),
    (r"writer\.builder\.class", "sink.type and sink.format choose what is written"),
    (
        r"writer\.file\..*|data\.publisher\.final\.name",
        "the job names its files and folders: its proofs rest on it",
    ),
    (r"data\.publisher\.type", f"{_NOT_NEEDED}: all is published by renaming, written ahead"),
    (r"data\.publisher\.replace\.final\.dir", "sink.publish: replace or replace_partitions; of Kafka it is append"),
    (r"(writer|data\.publisher)\..*(permissions|group|user)", "sink.access: mode, owner and group"),
    (r"writer\.output\.dir", f"{_NOT_NEEDED}: staged files are published by one rename"),
    (
        r"writer\..*|simplewriter\..*|data\.publisher\..*",
        "sink of the job file: conf/docs/reference/configuration.md#sinks",
    ),
    (r"metrics\..*", "`distcommit runs`, `report` and `status --json` report on runs"),
    (r"email\..*", "alerts of the job file report failed runs and quarantine"),
    (r"mr\..*|yarn\..*|gobblin\.yarn\..*|hadoop\..*|mapreduce\..*", "spark.conf, by Spark's names"),
    (r"task.*|cleanup\..*|state\.store\..*", f"{_NOT_NEEDED}: runs sweep, track and store by themselves"),
)
"""Why a property has no setting, by a pattern of its name. The first matching pattern applies."""
_UNKNOWN = "nothing here is known for it"
_DEFAULTS = {
    "bootstrap.with.offset": "source.start is latest, as Gobblin's default is",
    "reset.on.offset.out.of.range": "source.expired_offsets is fail: Gobblin would pass over what expired (nearest)",
    "data.publisher.final.dir": "paths.output is a folder beside the job file",
    "state.store.dir": "paths.store is beside the output",
}


class ConvertResult(msgspec.Struct, frozen=True):
    """A converted job.

    Attributes:
        job: name of the job.
        job_file: text of the job file.
        path: path of the written job file; empty if it was printed.
        translated: properties with a setting, in the order of conversion.
        untranslated: properties without a setting, by name.
        assumptions: settings that were assumed because their properties are missing.
    """

    job: str
    job_file: str
    path: str
    translated: list[TranslatedProperty]
    untranslated: list[UntranslatedProperty]
    assumptions: list[str]


def convert_job(
    file: Path, output: Path | None = None, *, sysconfig: Path | None = None, root: Path | None = None
) -> ConvertResult:
    """Convert a Gobblin job from Kafka to files into a job file. The job file is validated before it is written.

    Args:
        file: properties of the Gobblin job.
        output: the new job file, which must not exist; None to write none.
        sysconfig: properties of all jobs; see `read_properties`.
        root: folder of all jobs' files; see `read_properties`.

    Raises:
        ConfigurationError: with file and line, if a property is invalid or can't be converted into a valid job.
    """
    properties = read_properties(file, sysconfig=sysconfig, root=root)
    job = JobFileDraft(properties)
    name = job.pop("job.name")
    if name is None:
        raise ConfigurationError("the job has no name", id="GOBBLIN_JOB_INVALID", path=file, expected="job.name")
    job.put(name, "job", name.value)
    for rule in RULES:
        rule(job)
    put_folders(job, name.value)
    for entry in job.remaining():
        job.skip(entry, next((reason for pattern, reason in _WHY if re.fullmatch(pattern, entry.name)), _UNKNOWN))
    assumed = [f"no {name}: {value}" for name, value in _DEFAULTS.items() if name not in properties]
    text = _text(job, file, assumed)
    parse_config(yaml.safe_load(text), output or file)
    if output is not None:
        _write_new(output, text)
    untranslated = sorted(job.skipped, key=lambda row: row.name)
    return ConvertResult(name.value, text, str(output or ""), job.translated, untranslated, assumed)


def _text(job: JobFileDraft, file: Path, assumed: list[str]) -> str:
    """Return the job file, with comments on the properties that were not converted."""
    lines = [f"Made of {file.name}, a job of Gobblin's."]
    lines += [f"{key}: {job.text(key)}" for key in ("job.group", "job.description") if job.text(key)]
    rows = sorted(job.skipped, key=lambda row: row.name)
    untranslated = {row.name: row.reason for row in rows if row.reason != "is kept as a comment"}
    lines += ["Not translated:"] if untranslated else []
    lines += [f"  {name}: {reason}" for name, reason in untranslated.items()]
    lines += ["Said by nobody:", *(f"  {text}" for text in assumed)] if assumed else []
    wrapped = [part for line in lines for part in textwrap.wrap(line, _WIDTH, subsequent_indent="    ")]
    noted = [f"  {row.setting.partition(':')[0]}: {row.note}" for row in job.translated if row.note]
    wrapped += [part for line in dict.fromkeys(noted) for part in textwrap.wrap(line, _WIDTH, subsequent_indent="    ")]
    body = yaml.safe_dump(job.tree, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return "".join(f"# {line}\n" for line in map(printable, wrapped)) + "\n" + body


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
    except FileExistsError:
        raise ConfigurationError(
            "the job file is there already", path=path, expected="a new one", todo="name another, or remove it"
        ) from None
    except OSError as error:
        raise ConfigurationError("the job file can't be written", path=path, found=str(error)) from error
