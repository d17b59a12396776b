"""Executable models of the protocol's rules: small enough to search all states, each with naive variants that break.

`log_model`: the logs' records, delivery at least once, job-level decisions, rebuilds; `test_log_model` holds the
product's fold against it. Its cuts and heads, and all of `generation_model` (another number of buckets) and
`anchor_model` (what is older than the rest), are rules that the product does not have yet: they are settled here
before they are built. `replace_model`: published files that others take the place of, by a tombstone.
"""
