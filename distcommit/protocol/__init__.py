"""The commit protocol as pure functions: what counts, what comes next, what is ready, and how things are named.

Touches no file, clock or thread, and must not: its executable model is `tests/spec/log_model.py`. Start reading at
`validity` (which record may follow which state), `folding` (what it does), then `next_record` (what each writer
appends).
"""
