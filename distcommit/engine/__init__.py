"""The engine: the phases of one run, as plain functions that each process calls for its own partition.

Owns recovery, planning, ingest, committing, the drain, and the run that orders them. Must not know how its functions
are launched on many machines: that is a `Launch`, such as `distcommit.spark`. Start reading at `driver.run`, then
`committing.bucket_committer`. The events of a run are in `run_events`.
"""
