"""Metrics, traces, logs and lineage of runs. Must not fail a run. Start reading at `configured_observers`."""
