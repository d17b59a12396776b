"""How a job begins and ends a run: store, lock, session, record and alerts. Must not know how a run commits: that is
`engine`. Start reading at `run_context`."""
