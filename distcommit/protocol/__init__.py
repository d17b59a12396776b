"""The commit protocol as pure functions: valid records, the fold of a log, ready datasets, and names of files.

A *commit log* is a numbered sequence of records that several processes append to: one log for each bucket of datasets,
and the job log for the run as a whole. The state of a log is its *fold*: the result of applying its records in order,
from the newest checkpoint on. A record takes effect only if it is *valid* at its position. Every reader applies the
same rules to the same records, so all readers agree on the state, also about records of processes that were fenced in
the meantime.

Must not touch a file, a clock or a thread. The executable model is `tests/spec/log_model.py`. Start reading at
`validity` (which record may follow which state), then `folding` (the effect of each record), `next_record` (the record
that each writer appends) and `readiness` (when a dataset can be sealed).
"""
