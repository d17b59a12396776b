"""A job file for each validator of settings with a value that breaks it.

`▶` stands before the key, or the item of a list, that the problem must name, and is removed before the file is read.
Sections that a file does not have are added in front: `job`, `paths` and a Kafka `source`.
"""

from __future__ import annotations

from typing import NamedTuple


class Bad(NamedTuple):
    """A file and its problem.

    Attributes:
        text: the job file, with the mark.
        key: the setting, as the problem names it.
        required: the beginning of `SettingProblem.required`.
    """

    text: str
    key: str
    required: str


SQL = "source: {type: sql, url: 'sqlite:////a', tables: [t], watermark: id, lookback: 0, %s}"
REST = (
    "source: {type: rest, url: 'https://h/', datasets: [a], watermark: {field: f, type: time, since: s, lookback: 0},"
    " paging: {type: none}, %s}"
)
WATERMARK = (
    "source: {type: rest, url: 'https://h/', datasets: [a], paging: {type: none}, watermark: {field: f, since: s, %s}}"
)
PAGING = (
    "source: {type: rest, url: 'https://h/', datasets: [a],"
    " watermark: {field: f, type: time, since: s, lookback: 0}, paging: {type: page, param: p, %s}}"
)
TRANSFORM = "source: {type: spark, format: orc, datasets: {a: {}}, %s}"
FILES = "source: {type: files, paths: ['/a/{dataset}/*'], %s}"
POSTGRESQL = "sink: {type: postgresql, url: 'postgresql://h/a', %s}"
EMAIL = "alerts: {on_loss: true, emails: [{host: h, sender: a, recipients: [b], %s}]}"
FORK = "fork: {type: all, branches: {%s}}"
TO_KAFKA = "sink: {type: kafka, brokers: b, topic: %s, ledger: l}"

BAD: dict[str, Bad] = {
    # the whole job
    "FlowSettings._branches_have_sinks": Bad(FORK % "a: {}" + "\n▶sink: {}", "sink", "must not be set beside a fork"),
    "JobConfig._whole_units_are_not_truncated": Bad(
        "source: {type: micro_batch, dataset_column: c}\nlimits: {▶seconds: 1}", "limits.seconds", "must not be set for"
    ),
    "JobConfig._failed_ranges_can_be_read_again": Bad(
        "source: {type: micro_batch, dataset_column: c}\ntask: {▶retry_across_runs: always}",
        "task.retry_across_runs",
        "must be never for this source",
    ),
    "JobConfig._killed_runs_can_be_resumed": Bad(
        "task: {▶resume_across_runs: true}",
        "task.resume_across_runs",
        "must be false with commit.policy: full",
    ),
    "JobConfig._snapshots_replace": Bad(
        "source: {type: spark, format: orc, datasets: {a: {}}}\nsink: {▶publish: append}",
        "sink.publish",
        "must be replace in a sink of type files",
    ),
    "JobConfig._replacing_is_whole": Bad(
        "sink: {publish: replace}\ncommit: {▶policy: partial}",
        "commit.policy",
        "must be full with sink.publish: replace",
    ),
    "JobConfig._failed_runs_are_recorded": Bad(
        "alerts: {▶after_failed_runs: 101, commands: [{command: [a]}]}",
        "alerts.after_failed_runs",
        "must be at most retention.runs (100)",
    ),
    "JobConfig._source_does_not_read_sinks": Bad(
        "▶sink: {type: kafka, brokers: 'b:1', topic: x, ledger: l}", "sink", "must not write to topic x"
    ),
    "JobConfig._targets_can_be_met": Bad(
        "freshness: 1\nschedule: {▶interval_s: 60}",
        "schedule.interval_s",
        "must be at most the smallest freshness target",
    ),
    "JobConfig._files_can_be_compacted": Bad(
        "compact: {}\ncommit: {▶delivery: at_least_once}",
        "commit.delivery",
        "must be exactly_once with the section compact",
    ),
    "JobConfig._previews_are_whole": Bad(
        FORK % "a: {sink: {type: console}}, b: {sink: {▶type: files}}",
        "fork.branches.b.sink.type",
        "must be console in all branches",
    ),
    "JobConfig._sinks_can_deliver": Bad(
        "sink: {type: sqlite, path: /a}\ncommit: {▶delivery: at_least_once}",
        "commit.delivery",
        "must be exactly_once, because sink recognizes",
    ),
    "_fork": Bad("▶fork: all", "fork", "must be a section with type, branches"),
    "validated": Bad("sink: {▶type: file}", "sink.type", "must be one of console, delta, files"),
    "_branch_name": Bad(FORK % "▶a b: {}", "fork.branches.a b", "must be named with at most 64 letters"),
    "ForkSettings._sinks_are_distinct": Bad(
        FORK % "a: {sink: {type: sqlite, path: /a}}, b: {▶sink: {type: sqlite, path: /b}}",
        "fork.branches.b.sink",
        "must have another name than that of branch a",
    ),
    "ForkSettings._one_commit_at_most_is_final": Bad(
        FORK % f"a: {{{TO_KAFKA % 's'}}}, b: {{▶{TO_KAFKA % 't'}}}",
        "fork.branches.b.sink",
        "must be able to roll back a commit",
    ),
    "ForkSettings._one_branch_is_required": Bad(
        "fork: {type: all, ▶branches: {a: {optional: true}}}",
        "fork.branches",
        "must have a branch that is not optional",
    ),
    "ForkSettings._operator_names_branches": Bad(
        "▶fork: {type: by_schema, requires: {a: [x]}, branches: {a: {}, b: {}}}", "fork", "must name its branches"
    ),
    "ForkSettings._unmatched_is_known": Bad(
        "fork: {type: all, branches: {a: {}, b: {}}, ▶unmatched: c}", "fork.unmatched", "must be reject, drop or one of"
    ),
    # sections of the job
    "CommitSettings._job_level_is_full": Bad(
        "commit: {scope: job, ▶policy: partial}", "commit.policy", "must be full with scope: job"
    ),
    "PolicySettings._compile": Bad(
        "commit: {policies: [{policy: full, datasets: [a, ▶'(']}]}",
        "commit.policies.0.datasets.1",
        "must be a regular expression",
    ),
    "AlertSettings._has_hook_and_reason": Bad("▶alerts: {on_loss: true}", "alerts", "must have a hook"),
    "WebHook._is_http": Bad(
        "alerts: {on_loss: true, webhooks: [{▶url: 'ftp://h'}]}", "alerts.webhooks.0.url", "must begin with http://"
    ),
    "EmailHook._password_is_encrypted": Bad(
        EMAIL % "password: p, ▶tls: none", "alerts.emails.0.tls", "must be starttls or tls with a password"
    ),
    "ScheduleSettings._has_one_timetable": Bad(
        "schedule: {▶cron: '61 * * * *'}", "schedule.cron", "must be a cron expression with a next firing"
    ),
    "CompactSettings._can_be_met": Bad(
        "compact: {▶min_files: 1}", "compact.min_files", "must be at least 2, because one file is not merged"
    ),
    "FreshnessSettings._short": Bad("freshness: {▶target: soon}", "freshness.target", "must be a duration"),
    "FreshnessSettings._has_target": Bad("▶freshness: {}", "freshness", "must have target, or targets"),
    "_seconds": Bad(
        "freshness: {targets: [{datasets: [a], ▶target: 5 years}]}", "freshness.targets.0.target", "must be a duration"
    ),
    "TargetSettings._compile": Bad(
        "freshness: {targets: [{target: 1, datasets: [▶'*']}]}",
        "freshness.targets.0.datasets.0",
        "must be a regular expression",
    ),
    "TelemetrySettings._ends_in_prom": Bad(
        "telemetry: {▶metrics_file: /a}", "telemetry.metrics_file", "must end in .prom"
    ),
    "TelemetrySettings._is_http": Bad("telemetry: {▶traces_url: h}", "telemetry.traces_url", "must begin with http://"),
    "TelemetrySettings._lineage_has_one_target": Bad(
        "telemetry: {lineage_url: 'http://h', ▶lineage_file: /a}",
        "telemetry.lineage_file",
        "must not be set beside lineage_url",
    ),
    "SparkSettings._is_spark_connect": Bad("spark: {▶remote: h}", "spark.remote", "must have the form sc://HOST:PORT"),
    "SparkSettings._as_spark_text": Bad("spark: {▶conf: fast}", "spark.conf", "must be a section"),
    "SparkSettings._has_no_conf_with_remote": Bad(
        "spark: {remote: 'sc://h', ▶conf: {a: b}}", "spark.conf", "must not be set with remote"
    ),
    # sources
    "FilesSource._parse": Bad(
        "source: {type: files, format: csv, paths: [▶a]}", "source.paths.0", "must be an absolute path or a URL"
    ),
    "FilesSource._names_datasets": Bad(
        FILES % "format: csv, ▶dataset: d", "source.dataset", "must not be set if each path has {dataset}"
    ),
    "FilesSource._has_distinct_characters": Bad(
        FILES % "format: csv, ▶quote: ','", "source.quote", "must differ from delimiter"
    ),
    "FilesSource._names_columns": Bad(
        FILES % "format: csv, ▶encoding: latin-99", "source.encoding", "must be a text encoding of Python"
    ),
    "KafkaSource._compile": Bad(
        "source: {type: kafka, brokers: b, topic_patterns: [▶'(']}",
        "source.topic_patterns.0",
        "must be a regular expression",
    ),
    "KafkaSource._client_is_not_ours": Bad(
        "source: {type: kafka, brokers: b, topics: [x], client: {▶group.id: g}}",
        "source.client.group.id",
        "must not be set, because the source controls",
    ),
    "KafkaSource._check_files": Bad(
        "source: {type: kafka, brokers: b, topics: [x], client: {▶sasl.password: '${file:a}'}}",
        "source.client.sasl.password",
        "must name a secret's file by an absolute path",
    ),
    "KafkaSource._has_topics": Bad("▶source: {type: kafka, brokers: b}", "source", "must name at least one topic"),
    "RestSource._is_url": Bad(
        "source: {type: rest, ▶url: 'https://h/?a=b', datasets: [a], paging: {type: none},"
        " watermark: {field: f, type: time, since: s, lookback: 0}}",
        "source.url",
        "must not contain a user or a query (?)",
    ),
    "RestSource._are_names": Bad(
        "source: {type: rest, url: 'https://h/', datasets: [a, ▶a], paging: {type: none},"
        " watermark: {field: f, type: time, since: s, lookback: 0}}",
        "source.datasets.1",
        "must not be named twice",
    ),
    "RestSource._check_files": Bad(
        REST % "▶password: '${file:a}'", "source.password", "must name a secret's file by an absolute path"
    ),
    "RestSource._datasets_are_requested": Bad(
        REST % "overrides: {▶gone: {}}", "source.overrides.gone", "must be the name of a dataset of the source"
    ),
    "WatermarkField._fits_its_type": Bad(
        WATERMARK % "type: text, lookback: 0, ▶unique: true",
        "source.watermark.unique",
        "must only be set with type: integer",
    ),
    "PageNumberPaging._has_path_and_size": Bad(
        PAGING % "▶path: a", "source.paging.path", "must only be set with until: total or until: link"
    ),
    "SparkSource._are_names": Bad(
        "source: {type: spark, format: orc, datasets: {▶'': {}}}", "source.datasets.", "must be the name of a dataset"
    ),
    "SparkSource._check_files": Bad(
        "source: {type: spark, format: jdbc, datasets: {a: {}}, ▶password: '${file:a}'}",
        "source.password",
        "must name a secret's file by an absolute path",
    ),
    "SparkSource._has_lookback_with_watermark": Bad(
        "source: {type: spark, format: orc, datasets: {a: {}}, ▶lookback: 1}",
        "source.lookback",
        "must not be set without watermark",
    ),
    "SparkSource._publishes_ranges_of_single_rows": Bad(
        TRANSFORM % "watermark: a, lookback: 0, transform: {sql: SELECT * FROM source, ▶row_wise: false}",
        "source.transform.row_wise",
        "must be true with source.watermark",
    ),
    "FrameTransform._check_files": Bad(
        TRANSFORM % "transform: {function: 'm:f', options: {▶key: '${file:a}'}}",
        "source.transform.options.key",
        "must name a secret's file by an absolute path",
    ),
    "FrameTransform._has_one_text": Bad(
        TRANSFORM % "▶transform: {}", "source.transform", "must have either sql or function"
    ),
    "FrameTransform._has_table_names": Bad(
        TRANSFORM % "transform: {sql: SELECT * FROM source, tables: {▶source: {}}}",
        "source.transform.tables.source",
        "must be a name of letters, digits and _",
    ),
    "FrameTransform._is_query_of_dataset": Bad(
        TRANSFORM % "transform: {▶sql: SELECT 1 FROM a}", "source.transform.sql", "must read the table source"
    ),
    "SqlSource._is_url": Bad(
        "source: {type: sql, ▶url: 'postgresql://u:hush@h/a', tables: [t], watermark: id, lookback: 0}",
        "source.url",
        "must not contain a password",
    ),
    "SqlSource._check_files": Bad(
        SQL % "▶password: '${file:a}'", "source.password", "must name a secret's file by an absolute path"
    ),
    "SqlSource._compile": Bad(
        SQL % "table_patterns: [▶'(']", "source.table_patterns.0", "must be a regular expression"
    ),
    "SqlSource._url_options_are_valid": Bad(
        "source: {type: sql, ▶url: 'postgresql://h/a?sslmode=no', tables: [t], watermark: id, lookback: 0}",
        "source.url",
        "option sslmode must be one of",
    ),
    "SqlSource._has_tables": Bad(
        SQL % "overrides: {▶gone: {}}", "source.overrides.gone", "must be the name of a table or query of the source"
    ),
    "SqlSource._has_watermark_unless_snapshot": Bad(
        "source: {type: sql, url: 'sqlite:////a', tables: [t], table_type: snapshot_only, ▶start: latest}",
        "source.start",
        "must not be set with table_type: snapshot_only",
    ),
    "TableOverrides._check_names": Bad(
        SQL % "overrides: {t: {columns: [a, ▶a]}}", "source.overrides.t.columns.1", "must not be named twice"
    ),
    # sinks
    "DeltaSettings._check_location": Bad(
        "sink: {type: delta, ▶location: a}", "sink.location", "must be an absolute path, file:///..."
    ),
    "DataFileSink._check_table": Bad(
        "sink: {type: delta, location: /a, ▶table: a b}", "sink.table", "must be of letters, digits and _"
    ),
    "DeltaSettings._is_read": Bad(
        "sink: {type: delta, location: /a, ▶table: _a}", "sink.table", "must not begin with _"
    ),
    "FileLayout._fits_format": Bad(
        "sink: {format: csv, ▶compression: none}", "sink.compression", "must be zstd or gzip with format: csv"
    ),
    "FileSink._has_partitions": Bad(
        "▶sink: {publish: replace_partitions}", "sink.partition_by", "must be set with publish: replace_partitions"
    ),
    "_partitions": Bad("sink: {▶partition_by: day}", "sink.partition_by", "must be a section with field"),
    "TimePartition._known_zone": Bad(
        "sink: {partition_by: {▶time_zone: Mars}}", "sink.partition_by.time_zone", "must be an IANA time zone"
    ),
    "AccessSettings._is_octal": Bad("sink: {access: {▶mode: rw}}", "sink.access.mode", "must be three octal digits"),
    "IcebergSettings._check_terms": Bad(
        "sink: {type: iceberg, namespace: n, catalog: {type: sql, uri: 'sqlite://'}, partition_by: [▶'a(b']}",
        "sink.partition_by.0",
        "must be a column, or a transform",
    ),
    "CatalogSettings._url_options_are_valid": Bad(
        "sink: {type: iceberg, namespace: n, catalog: {type: sql, ▶uri: 'postgresql://h/a?sslmode=no'}}",
        "sink.catalog.uri",
        "option sslmode must be one of",
    ),
    "KafkaSink._client_is_not_ours": Bad(
        "sink: {type: kafka, brokers: b, topic: t, ledger: l, client: {▶acks: '1'}}",
        "sink.client.acks",
        "must not be set, because exactly-once delivery depends on it",
    ),
    "KafkaSink._check_files": Bad(
        "sink: {type: kafka, brokers: b, topic: t, ledger: l, client: {▶sasl.password: '${file:a}'}}",
        "sink.client.sasl.password",
        "must name a secret's file by an absolute path",
    ),
    "KafkaSink._names_topics": Bad(
        "sink: {type: kafka, brokers: b, topic: t, ▶ledger: t}", "sink.ledger", "must be another topic than topic"
    ),
    "ServerSink._check_url": Bad(
        "sink: {type: postgresql, ▶url: 'postgresql://u:hush@h/a'}", "sink.url", "must not contain a password"
    ),
    "ServerSink._check_files": Bad(
        POSTGRESQL % "▶password: '${file:a}'", "sink.password", "must name a secret's file by an absolute path"
    ),
    "ServerSink._url_options_are_valid": Bad(
        "sink: {type: mariadb, ▶url: 'mariadb://h/a?nonsense=1'}", "sink.url", "option 'nonsense' is unknown"
    ),
    "ServerSink._can_be_prepared": Bad(
        POSTGRESQL % "two_phase: true, ▶evolve: add_columns", "sink.evolve", "must be none with two_phase: true"
    ),
    "MariadbSink._waits_for_no_locks": Bad(
        "sink: {type: mariadb, url: 'mariadb://h/a', two_phase: true, ▶tags: true}",
        "sink.tags",
        "must not be true with two_phase: true",
    ),
    "DeclaredExtract._check_names": Bad(
        "source: {type: kafka, brokers: b, topics: [a], extract: {keys: [a, ▶a]}}",
        "source.extract.keys.1",
        "must not be named twice",
    ),
    "TableSink._is_template": Bad(POSTGRESQL % "▶table: '{a}'", "sink.table", "must be a table's name"),
    "TableSink._check_keys": Bad(POSTGRESQL % "mode: upsert, keys: [a, ▶a]", "sink.keys.1", "must not be named twice"),
    "TableSink._fits_mode": Bad(POSTGRESQL % "▶version: v", "sink.version", "must only be set with mode: upsert"),
    "SqliteSink._is_absolute": Bad(
        "sink: {type: sqlite, ▶path: a}", "sink.path", "must be the absolute path of a file"
    ),
    # constructs
    "_checked": Bad(
        "converters: [{type: cast, columns: {▶a: text}}]", "converters.0.columns.a", "must be one of string"
    ),
    "Cast._are_scalars": Bad(
        "converters: [{type: cast, columns: {▶a: [string]}}]", "converters.0.columns.a", "must not be a list, a struct"
    ),
    "Parse._has_consistent_forms": Bad(
        "converters: [{type: parse, ▶thousands: '.'}]", "converters.0.thousands", "must differ from decimal"
    ),
    "EvolutionSettings._schema_goes_with_evolution": Bad(
        "converters: [{type: avro, registry: {url: 'http://r'}, ▶schema: {subject: s, version: 1}}]",
        "converters.0.schema",
        "must only be set with evolution: pin or fail",
    ),
    "RegistrySettings._is_http": Bad(
        "converters: [{type: avro, registry: {▶url: r}}]", "converters.0.registry.url", "must begin with http://"
    ),
    "RegistrySettings._check_files": Bad(
        "converters: [{type: avro, registry: {url: 'http://r', client: {▶a: '${file:a}'}}}]",
        "converters.0.registry.client.a",
        "must name a secret's file by an absolute path",
    ),
    "Condition._check_one_form": Bad(
        "converters: [{type: filter, ▶when: {column: a}}]", "converters.0.when", "must have"
    ),
    "DebeziumConverter._check_metadata": Bad(
        "converters: [{type: debezium, metadata: [op, ▶op]}]", "converters.0.metadata.1", "must not be named twice"
    ),
    "JsonFieldsConverter._fits_fields": Bad(
        "converters: [{type: json, fields: {a: string}, ▶evolution: pin}]",
        "converters.0.evolution",
        "must not be set with fields",
    ),
    "ProvenanceColumns._adds_columns": Bad(
        "converters: [{type: provenance, constants: {▶a: 9223372036854775808}}]",
        "converters.0.constants.a",
        "must be a number of at most 64 bits",
    ),
    "EvolutionPolicy._fits_evolution": Bad(
        "converters: [{type: schema, evolution: pin, ▶on_incompatible: fail}]",
        "converters.0.on_incompatible",
        "must only be set with evolution: evolve",
    ),
    "Sql._has_valid_expressions": Bad(
        "converters: [▶{type: sql}]", "converters.0", "must have where, columns, or both"
    ),
    "Range._has_limit": Bad(
        "row_checkers: [▶{type: range, column: a}]", "row_checkers.0", "must have min, max, or both"
    ),
    "Regex._is_re2": Bad(
        "row_checkers: [{type: regex, column: a, ▶pattern: '('}]",
        "row_checkers.0.pattern",
        "must be a regular expression of RE2",
    ),
    "RowCount._has_limit": Bad(
        "task_checkers: [{type: row_count, min: 2, ▶max: 1}]", "task_checkers.0.max", "must not be less than min (2)"
    ),
}
