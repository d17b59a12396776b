"""Many jobs in one warm session: the folder of job files, the threads that run them, the service that gives orders.

Must not know how a job runs. Start reading at `serve`.
"""
