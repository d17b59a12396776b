"""The commit protocol as pure functions: valid records, the state of a log, and ready datasets.

A *commit log* is a numbered sequence of records that several processes append to. Each bucket of datasets has a log,
and the job log belongs to the run as a whole. The *fold* of a log is its state: the records applied in order, from the
newest checkpoint on. A record takes effect only if it is *valid* at its position. Every reader applies the same rules,
so all agree on the state, even if some records come from fenced processes.

The package must not touch files, clocks or threads. The executable model is `tests/spec/log_model.py`. Start reading at
`record_validity`, then `record_effects`, `next_log_record` and `seal_decision`.
"""
