"""The engine: the phases of a run, as functions that each process calls for its own partition.

Must not know how functions are launched on machines: a `Launch` does. Start reading at `driver.run`, then
`committing.bucket_committer`.
"""
