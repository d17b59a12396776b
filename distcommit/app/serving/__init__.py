"""Run many jobs in one Spark session: the folder of job files, a thread for each job, and the service. Must not contain
how a job runs. Start reading at `service`.
"""
