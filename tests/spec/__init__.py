"""Executable models of the protocol's rules, small enough to search all states, each with naive variants that break.

`log_model`: the records of the logs, at-least-once delivery, job-level decisions, cuts, read failures and rebuilds;
`test_log_model` compares the product's fold with it. `generation_model`: rebucketing. `anchor_model`: stores, outputs
and logs that are older than the rest. `cut_model`: snapshots for readers. `replace_model`: published files that a
tombstone replaces. `partial_model`: prefixes of failed attempts. `abandon_model` and `bases_model`: commits at targets.
`set_model`: watermarks that operators set.
"""
