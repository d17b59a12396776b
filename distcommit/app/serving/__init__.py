"""Run many jobs: the folder of job files, a thread for each job, runs in processes, and the service. Must not contain
how a job runs. Start reading at `service`.
"""
