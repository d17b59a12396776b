"""Executable models of the protocol's rules, small enough to search all states, each with naive variants that break.

`log_model`: the records of the logs, at-least-once delivery, job-level decisions, cuts, read failures and rebuilds.
`log_scenarios` searches the states that `log_actors` reach. `product_log` reads the product's records as the model's:
`test_log_model`, the stateful tests and `tests.simulation` compare the product's logs with it. `generation_model`:
rebucketing. `anchor_model`: stores, outputs and logs that are older than the rest. `cut_model`: snapshots for readers.
`replace_model`: published files that a tombstone replaces. `partial_model`: prefixes of failed attempts.
`abandon_model` and `bases_model`: commits at targets. `set_model`: watermarks that operators set.

The models know no other package of the tests. Start reading at `log_model`.
"""
