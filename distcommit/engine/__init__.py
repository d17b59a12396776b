"""The engine: what one run does, phase by phase, as plain functions that each process calls with its own share.

Owns recovery, planning, ingest, committing and the drain, and the run that puts them in order. It must not know what
launches its functions on many machines: that is a `Launch`, such as `distcommit.spark`. Start reading at `run`, then
`committer`.
"""
