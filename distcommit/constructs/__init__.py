"""Constructs: converters, checkers and fork operators between source and sinks.

Must not depend on sources, sinks, stores or Spark. Start reading at `core.interfaces.constructs`, then
`construct_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping

TYPES: Mapping[str, Mapping[str, str]] = {
    "converter": {
        "avro": "converters.registry_formats.avro:AvroConverter",
        "cast": "converters.cast:Cast",
        "debezium": "converters.debezium:DebeziumConverter",
        "drop": "converters.projection:Drop",
        "explode": "converters.nested:Explode",
        "filter": "converters.filter:Filter",
        "flatten": "converters.nested:Flatten",
        "hash": "converters.masking:Hash",
        "json": "converters.json:JsonConverter",
        "json_schema": "converters.registry_formats.json_schema:JsonSchemaConverter",
        "key": "converters.key:Key",
        "mask": "converters.masking:Mask",
        "parse": "converters.parse:Parse",
        "protobuf": "converters.registry_formats.protobuf:ProtobufConverter",
        "provenance": "converters.added_columns:ProvenanceColumns",
        "python": "custom_constructs:PythonConverter",
        "rename": "converters.projection:Rename",
        "schema": "converters.schema:SchemaConverter",
        "select": "converters.projection:Select",
        "sql": "converters.sql:Sql",
        "tombstones": "converters.added_columns:Tombstones",
    },
    "row_checker": {
        "in_set": "checkers.row_values:InSet",
        "not_null": "checkers.row_values:NotNull",
        "python": "custom_constructs:PythonRowChecker",
        "range": "checkers.row_values:Range",
        "regex": "checkers.row_values:Regex",
        "schema": "checkers.schema:SchemaRowChecker",
    },
    "task_checker": {
        "fraction_rejected": "checkers.record_counts:FractionRejected",
        "freshness": "checkers.freshness:Freshness",
        "python": "custom_constructs:PythonTaskChecker",
        "row_count": "checkers.record_counts:RowCount",
        "row_count_of_source": "checkers.record_counts:RowCountOfSource",
        "schema": "checkers.schema:SchemaTaskChecker",
        "unique": "checkers.unique:Unique",
    },
    "fork": {
        "all": "forks.by_schema:AllBranches",
        "by_schema": "forks.by_schema:BySchema",
        "every_match": "forks.by_condition:EveryMatch",
        "first_match": "forks.by_condition:FirstMatch",
        "python": "custom_constructs:PythonFork",
    },
}
"""Module below this package and class, by section and type; only a job's own are imported."""
