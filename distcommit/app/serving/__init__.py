"""Many jobs in one Spark session: the folder of job files, the threads that run them, and the service. Must not know
how a job runs. Start reading at `serve`."""
