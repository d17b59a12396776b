"""Before and after a run: open the store, the lock and Spark, record the environment, send alerts; cancel a run.

Must not contain the run itself and its phases, which are `engine`. Start reading at `run_context`.
"""
