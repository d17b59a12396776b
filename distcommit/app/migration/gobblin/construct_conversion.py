"""Conversion of Gobblin's converters, quality policies and forks, of the job and of each branch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from distcommit.app.migration.gobblin.classes_to_port import port_note, port_of, simple_name
from distcommit.app.migration.gobblin.job_file_draft import JobFileDraft, integer_of, listed
from distcommit.app.migration.gobblin.read_properties import Property

_AS_COLUMNS = {
    "IdentityConverter",
    "StringSchemaInjector",
    *("CsvToJsonConverter", "CsvToJsonConverterV2", "JsonIntermediateToAvroConverter"),
    *("AvroRecordToAvroWritableConverter", "HiveSerDeConverter", "AvroToJdbcEntryConverter"),
}
"""Converters between Java's forms of a record. Records here are columns from source to sink."""

_JSON = {"BytesToJsonConverter", "JsonStringToJsonIntermediateConverter"}
_ACCEPTS_ALL = "SchemaRowCheckPolicy"


@dataclass(frozen=True, slots=True)
class Chain:
    """The constructs of the job, or of one branch.

    Attributes:
        section: section of the job file with a dot at its end; empty for the job.
        suffix: suffix of Gobblin's properties, as `.0`; empty for the job.
    """

    section: str = ""
    suffix: str = ""

    def pop(self, job: JobFileDraft, name: str) -> Property | None:
        """Take the property of this chain."""
        return job.pop(f"{name}{self.suffix}")


def chains_of(job: JobFileDraft) -> list[Chain]:
    """Return the chains that end with a sink: one for each branch, or the job's.

    Raises:
        ConfigurationError: if the number of branches is invalid.
    """
    count = job.peek("fork.branches")
    number = integer_of(count, least=1) if count is not None else 1
    if count is None or number == 1:
        return [Chain()]
    names = [_branch(job, n) for n in range(number)]
    if len(set(names)) < number:
        raise count.wrong("two branches have the same name", expected="a fork.branch.name for each", todo="rename one")
    return [Chain(f"fork.branches.{name}.", f".{n}") for n, name in enumerate(names)]


def _branch(job: JobFileDraft, number: int) -> str:
    name = job.text(f"fork.branch.name.{number}") or f"fork_{number}"
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def put_fork(job: JobFileDraft) -> None:
    """Set `fork`, if the job has several branches."""
    operator, count = job.pop("fork.operator.class"), job.pop("fork.branches")
    if count is None or integer_of(count, least=1) == 1:
        for entry in (operator, count):
            job.skip(entry, "a job with one branch has no fork")
        return
    own = operator.value if operator is not None and simple_name(operator.value) != "IdentityForkOperator" else ""
    section = port_of(own) if own else {"type": "all"}
    for key, value in section.items():
        job.put(operator, f"fork.{key}", value, port_note(own) if own else "")
    for number, chain in enumerate(chains_of(job)):
        name = chain.section.split(".")[2]
        job.put(count, f"fork.branches.{name}", {})
        job.put(job.pop(f"fork.branch.name.{number}"), f"fork.branches.{name}", {})


def put_constructs(job: JobFileDraft) -> None:
    """Set the converters and checkers of the job, and of its branches."""
    for chain in dict.fromkeys((Chain(), *chains_of(job))):
        _converters(job, chain)
        _row_checkers(job, chain)
    for chain in chains_of(job):
        _task_checkers(job, chain)


def _converters(job: JobFileDraft, chain: Chain) -> None:
    classes = chain.pop(job, "converter.classes")
    options = {
        name: chain.pop(job, f"converter.{name}")
        for name in ("avro.fields", "filter.field", "filter.value", "avro.jdbc.entry_fields_pairs")
    }
    taken: set[str] = set()
    kept: list[str] = []
    for java_class in listed(classes) if classes is not None else []:
        name = simple_name(java_class)
        section, names = _converter(name, options)
        taken.update(names)
        for key in names:
            note = "text, as it is here; a number is written without quotes" if key == "filter.value" else ""
            job.append(options[key], f"{chain.section}converters", section, note)
        if section is None:
            kept.append(name)
            continue
        job.append(classes, f"{chain.section}converters", section, "" if names else port_note_of(section, java_class))
    if kept:
        job.skip(classes, f"need no setting, because records are columns: {', '.join(kept)}")
    for key, entry in options.items():
        if key not in taken:
            job.skip(entry, "no converter of the job uses it")


def port_note_of(section: dict[str, Any], java_class: str) -> str:
    """Return the note on a section that names a class to write; empty if it does not."""
    return port_note(java_class) if section.get("type") == "python" else ""


def _converter(name: str, options: dict[str, Property | None]) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the section of a converter with the used options; None if it needs none."""
    match name:
        case "AvroFieldsPickConverter" if (fields := options["avro.fields"]) is not None and "." not in fields.value:
            return {"type": "select", "columns": listed(fields)}, ["avro.fields"]
        case "AvroFilterConverter" if (field := options["filter.field"]) is not None and "." not in field.value:
            wanted = options["filter.value"]
            value = wanted.value if wanted is not None else ""
            when = {"column": field.value, "op": "==", "value": value}
            return {"type": "filter", "when": when}, ["filter.field", *(["filter.value"] if wanted else [])]
        case "AvroToJdbcEntryConverter" if (pairs := options["avro.jdbc.entry_fields_pairs"]) is not None:
            return {"type": "rename", "columns": _pairs(pairs)}, ["avro.jdbc.entry_fields_pairs"]
        case _ if name in _AS_COLUMNS:
            return None, []
        case _ if name in _JSON:
            return {"type": "json"}, []
    return port_of(name), []


def _pairs(entry: Property) -> dict[str, str]:
    try:
        pairs = json.loads(entry.value)
        return {str(old): str(new) for old, new in pairs.items()}
    except (AttributeError, ValueError):
        raise entry.wrong("the pairs of names can't be read", expected='{"field": "column", ...}') from None


def _row_checkers(job: JobFileDraft, chain: Chain) -> None:
    policies, types = (chain.pop(job, f"qualitychecker.row.{name}") for name in ("policies", "policy.types"))
    levels = _levels(types)
    sections = [
        {**port_of(policy), **_effect(levels[index : index + 1])}
        for index, policy in enumerate(listed(policies) if policies is not None else [])
        if simple_name(policy) != _ACCEPTS_ALL
    ]
    names = [policy for policy in listed(policies) if simple_name(policy) != _ACCEPTS_ALL] if policies else []
    for entry in (policies, types):
        if sections and entry is not None:
            job.put(entry, f"{chain.section}row_checkers", sections, port_note(*names))
        elif policies is None:
            job.skip(entry, "there are no policies")
        if policies is not None and len(names) < len(listed(policies)):
            job.skip(entry, f"{_ACCEPTS_ALL} accepts every record: it needs no setting")


def _effect(levels: list[str]) -> dict[str, str]:
    """Return the settings for a type of policy. Gobblin's default is OPTIONAL."""
    match levels:
        case ["FAIL"]:
            return {"level": "mandatory", "on_failure": "fail"}
        case ["ERR_FILE"]:
            return {"level": "mandatory", "on_failure": "divert"}
    return {"level": "optional"}


def _levels(types: Property | None) -> list[str]:
    levels = [item.upper() for item in listed(types)] if types is not None else []
    for level in levels:
        if types is not None and level not in ("FAIL", "OPTIONAL", "ERR_FILE"):
            raise types.wrong("the type of a policy is unknown", expected="FAIL, OPTIONAL or ERR_FILE")
    return levels


def _number(entry: Property) -> float:
    try:
        return float(entry.value)
    except ValueError:
        raise entry.wrong("the value is not a number", expected="a share, such as 0.05") from None


def _task_checkers(job: JobFileDraft, chain: Chain) -> None:
    policies, types, tolerance = (
        chain.pop(job, name)
        for name in (
            "qualitychecker.task.policies",
            "qualitychecker.task.policy.types",
            "qualitychecker.row.count.range",
        )
    )
    if policies is None:
        for entry in (types, tolerance):
            job.skip(entry, "there are no policies")
        return
    levels, ported, is_used = _levels(types), list[str](), False
    for index, policy in enumerate(listed(policies)):
        name = simple_name(policy)
        level = "mandatory" if levels[index : index + 1] == ["FAIL"] else "optional"
        match name:
            case "RowCountPolicy" | "RowCountRangePolicy":
                section: dict[str, Any] = {"type": "row_count_of_source", "level": level}
                if name == "RowCountRangePolicy" and tolerance is not None:
                    section["tolerance"] = _number(tolerance)
                    job.append(tolerance, f"{chain.section}task_checkers", section)
                    is_used = True
            case "SchemaCompatibilityPolicy" if level == "optional":
                job.skip(policies, f"{name} is optional: records with other columns are accepted without it")
                continue
            case "SchemaCompatibilityPolicy":
                job.append(policies, f"{chain.section}converters", {"type": "schema", "evolution": "fail"})
                continue
            case _:
                section = {**port_of(policy), "level": level}
                ported.append(policy)
        job.append(policies, f"{chain.section}task_checkers", section, port_note(policy) if policy in ported else "")
    if types is not None:
        job.put_again(types, f"{chain.section}task_checkers")
    if not is_used:
        job.skip(tolerance, "no policy of the job uses it")
