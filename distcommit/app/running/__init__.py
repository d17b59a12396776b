"""Begin and end runs: store, lock, Spark session, run record and alerts. Must not contain the commit protocol, which is
`engine`. Start reading at `run_context`.
"""
