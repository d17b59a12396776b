"""The commit protocol as pure functions: valid records, the state of a log, ready datasets, and names of files.

A *commit log* is a numbered sequence of records that several processes append to. Each bucket of datasets has a log,
and the job log belongs to the run as a whole. The *fold* of a log is its state: the result of applying its records in
order, from the newest checkpoint on. A record takes effect only if it is *valid* at its position. Every reader applies
the same rules to the same records, so all readers agree on the state, even if some records come from processes that
were fenced in the meantime.

The package must not touch files, clocks or threads. The executable model is `tests/spec/log_model.py`. Start reading at
`record_validity` (which record may follow which state), then `record_effects` (the effect of each record),
`next_log_record` (the record that each writer appends) and `seal_decision` (which attempts win, and when a dataset can
be sealed).
"""
