"""Inputs whose right value depends on other records, runs or folders: upserts, loops, names and positions."""

from __future__ import annotations

from tests.inputs.case import Case

_NEWEST = "tests/unit/sinks/upsert_cases.py::NewestCases::"
_UPSERTS = [
    (
        "offset 9 through one branch, then offset 5 of the same key through another",
        "value of offset 9",
        "test_later_position_wins_between_two_branches_with_one_key",
    ),
    (
        "offset 5 reprocessed through another branch over offset 9",
        "value of offset 9",
        "test_reprocessed_row_of_another_branch_is_compared_by_its_position",
    ),
    (
        "row 100 of files, rejected before a restart, reprocessed over row 1 that was read after it",
        "value of row 1",
        "test_reprocessed_row_numbered_before_a_restart_replaces_no_later_row",
    ),
    (
        "row 1 of files, rejected after a restart, reprocessed over row 100 that was read before it",
        "value of row 1",
        "test_reprocessed_row_of_a_later_numbering_replaces_an_earlier_row",
    ),
]
_REPROCESSED = "tests/integration/operate/test_reprocess.py::"
_LOOPS = "tests/unit/app/job_file/test_loops.py::"
_LOOP_CASES = [
    (
        "source and sink of one Kafka cluster and topic, at addresses with nothing in common",
        "rejected by the plan checks",
        _LOOPS + "test_one_kafka_cluster_at_addresses_that_differ_is_a_loop",
    ),
    (
        "Iceberg table lake.shop.orders to shop.orders of a catalog at another address",
        "accepted",
        _LOOPS + "test_iceberg_tables_of_one_name_are_apart_if_their_catalogs_are",
    ),
    (
        "Iceberg catalogs https://Catalog.example:443/api/ and https://catalog.example/api",
        "rejected: one catalog",
        _LOOPS + "test_iceberg_tables_of_one_name_are_apart_if_their_catalogs_are",
    ),
    (
        "SQL source without schema, sink in another schema of its database",
        "rejected, naming source.schema",
        _LOOPS + "test_error_for_a_source_without_schema_names_the_schema_setting",
    ),
]
_ABANDONED = "tests/unit/stores/logs/test_failing_callbacks.py::"
_UNDONE = _ABANDONED + "test_sequence_whose_step_was_not_taken_back_stays_in_revocation"
_COMMITTERS = "tests/unit/steps/test_sink_step.py::test_committer_callback_that_returns_false_has_failed"
_CALLBACKS = [
    ("withdraw() of a custom step", "rejected: stays revoking", _UNDONE),
    ("undo() of a custom step", "rejected: stays revoking", _UNDONE),
]
CASES = [
    *(
        Case("steps", f"{given} returns {answer}", right, test=test)
        for given, right, test in _CALLBACKS
        for answer in ("False", "0", "'failed'")
    ),
    Case(
        "steps",
        "make_durable() of a custom step returns False",
        "rejected: the step failed",
        test=_ABANDONED + "test_effect_that_was_not_made_durable_is_a_failed_step",
    ),
    Case(
        "watermarks set by hand",
        "offsets 0 to 5 published, watermark set to 2 and then to 8",
        "the audit names 5 to 8 as skipped",
        test="tests/unit/app/admin/test_audit_after_operator_actions.py::"
        "test_ranges_reported_as_skipped_exclude_published_and_rejected_records",
    ),
    *(
        Case(
            "folders",
            f"partition values {given}",
            "separate folders; the column stays in the files",
            test="tests/unit/sinks/files/test_partition_values.py::"
            "test_values_that_differ_in_case_or_unicode_form_have_separate_folders_and_stay_in_the_files",
        )
        for given in ("DE and de", "caf\\u00e9 and cafe\\u0301")
    ),
    Case(
        "messages",
        "a message without fields beside the column offset",
        "a row of offset",
        test="tests/unit/constructs/registry/test_registry_schema_policy.py::"
        "test_messages_without_fields_are_rows_of_the_other_columns",
    ),
    Case(
        "messages",
        "a message without fields where there is no other column",
        "rejected: no column would be left; keep_column: true helps",
        test="tests/unit/constructs/registry/test_registry_schema_policy.py::"
        "test_messages_without_fields_or_other_columns_are_rejected_with_a_remedy",
    ),
    Case(
        "sql",
        "a first run by times whose newest row is two years old",
        "a note of the run on late rows",
        test="tests/integration/sources/test_postgresql.py::test_first_run_by_times_skips_no_later_row_or_reports_it",
    ),
    *(
        Case("steps", f"{callback}() of a custom committer returns False", "rejected: named", test=_COMMITTERS)
        for callback in ("withdraw", "allow", "abort")
    ),
    *(Case("loops", given, right, test=test) for given, right, test in _LOOP_CASES),
    *(Case("upsert", given, right, test=_NEWEST + name) for given, right, name in _UPSERTS),
    Case(
        "upsert",
        "a record of run 1 that is rejected twice and then reprocessed over one of run 2 in another partition",
        "value of run 2",
        test=_REPROCESSED + "test_an_upsert_keeps_the_newest_row_when_older_ones_are_reprocessed_twice",
    ),
]
