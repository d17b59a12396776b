"""Conversion of Gobblin's file-based sources to the source `files`."""

from __future__ import annotations

import json
from typing import Any

from distcommit.app.migration.gobblin.classes_to_port import simple_name
from distcommit.app.migration.gobblin.job_file_draft import JobFileDraft, listed, truth
from distcommit.app.migration.gobblin.read_properties import Property

FILE_SOURCES = {
    "AvroFileSource": "avro",
    "DatePartitionedAvroFileSource": "avro",
    "DatePartitionedJsonFileSource": "jsonl",
    "TextFileBasedSource": "text",
    "SftpSource": "text",
}
"""Formats of the files of each source. Lines of text get theirs from the converters."""

_LINES = {
    "CsvToJsonConverter": "csv",
    "CsvToJsonConverterV2": "csv",
    "JsonStringToJsonIntermediateConverter": "jsonl",
}
_TYPES = {
    **{"int": "int64", "integer": "int64", "long": "int64", "bigint": "int64"},
    **{"float": "float64", "double": "float64", "boolean": "bool"},
}
_ONCE = "each file is read once, by its modification time"


def put_files(job: JobFileDraft, source: Property, kind: str) -> None:
    """Set `source` to the files of a folder.

    Raises:
        ConfigurationError: if the format of the files is unknown, or no folder is named.
    """
    form = FILE_SOURCES[kind]
    if form == "text":
        names = map(simple_name, job.text("converter.classes").split(","))
        form = next((_LINES[name] for name in names if name in _LINES), "")
    if not form:
        raise source.wrong(
            "the files have lines of text without a format", expected=f"a converter of {', '.join(_LINES)}"
        )
    note = "a password or key is in FSSPEC_SFTP_PASSWORD or FSSPEC_SFTP_KEY_FILENAME" if kind == "SftpSource" else ""
    job.put(source, "source.type", "files", note)
    _paths(job, source, kind)
    table, entity = job.pop("extract.table.name"), job.pop("source.entity")
    name = table or entity
    job.put(name, "source.dataset", name.value if name is not None else job.text("job.name"))
    if table is not None:
        job.skip(entity, "its files are selected by source.paths")
    job.put(source, "source.format", form)
    if form == "csv":
        _columns(job)
    for key in ("extract.table.type", "extract.is.full"):
        job.skip(job.pop(key), f"{_ONCE}: a run adds the new files to the output")


def _paths(job: JobFileDraft, source: Property, kind: str) -> None:
    folder, files = job.pop("source.filebased.data.directory"), job.pop("source.filebased.files.to.pull")
    uri = job.pop("source.filebased.fs.uri") or job.peek("fs.uri")
    if folder is None and files is None:
        raise source.wrong("the source has no folder", expected="source.filebased.data.directory")
    root = _sftp_root(job) if kind == "SftpSource" else _root(uri)
    if folder is not None:
        entity = job.text("source.entity") if kind in ("SftpSource", "TextFileBasedSource") else ""
        below = f"*{entity}*" if entity else "*"
        if kind.startswith("DatePartitioned"):
            prefix = job.pop("date.partitioned.source.partition.prefix")
            below = f"{prefix.value}/**/*" if prefix is not None else "**/*"
            job.put(prefix, "source.paths", [_path(root, f"{folder.value.rstrip('/')}/{below}")])
            for name in ("pattern", "suffix"):
                job.skip(job.pop(f"date.partitioned.source.partition.{name}"), f"{_ONCE}, in folders at any depth")
        job.put(folder, "source.paths", [_path(root, f"{folder.value.rstrip('/')}/{below}")])
        job.skip(files, "all files of the folder are read")
    elif files is not None:
        job.put(files, "source.paths", [_path(root, path) for path in listed(files)])
    if uri is not None and uri.name == "source.filebased.fs.uri":
        job.skip(uri, "is a part of source.paths")


def _sftp_root(job: JobFileDraft) -> str:
    host, port, user = (job.pop(f"source.conn.{name}") for name in ("host", "port", "username"))
    authority = host.value if host is not None else "localhost"
    authority = f"{user.value}@{authority}" if user is not None else authority
    authority = f"{authority}:{port.value}" if port is not None else authority
    for entry in (host, port, user):
        job.skip(entry, "is a part of source.paths")
    return f"sftp://{authority}"


def _root(uri: Property | None) -> str:
    return "" if uri is None or uri.value.startswith("file:") else uri.value.rstrip("/")


def _path(root: str, path: str) -> str:
    if "://" in path:
        return path.removeprefix("file://") if path.startswith("file:///") else path
    return f"{root}/{path.lstrip('/')}" if root or not path.startswith("/") else path


def _columns(job: JobFileDraft) -> None:
    delimiter, header, schema = (
        job.pop(name) for name in ("converter.csv.to.json.delimiter", "source.skip.first.record", "source.schema")
    )
    if delimiter is not None:
        mark = {"\\t": "\t", "/t": "\t"}.get(delimiter.value, delimiter.value.strip('"').removeprefix("\\") or "\t")
        if len(mark) == 1:
            job.put(delimiter, "source.delimiter", mark)
        else:
            job.skip(delimiter, "source.delimiter is one character, not a regular expression")
    has_header = header is not None and truth(header)
    job.put(
        header, "source.header", has_header, "the header must have the names of source.columns" if has_header else ""
    )
    names: list[str] = []
    types: dict[str, str] = {}
    for column in _schema(schema):
        names.append(str(column["columnName"]))
        kind = str((column.get("dataType") or {}).get("type", "")).lower()
        if kind in _TYPES:
            types[names[-1]] = _TYPES[kind]
    if schema is None:
        job.put(None, "source.header", True)
        return
    job.put(schema, "source.columns", names)
    if types:
        job.put(schema, "converters", [{"type": "parse", "columns": types}], "dates and other types stay text")


def _schema(schema: Property | None) -> list[dict[str, Any]]:
    if schema is None:
        return []
    try:
        columns = json.loads(schema.value)
        if isinstance(columns, list) and all(isinstance(each, dict) and "columnName" in each for each in columns):
            return columns
    except (TypeError, ValueError):
        pass
    raise schema.wrong("the schema is not a list of columns", expected='[{"columnName": ...}, ...]')
