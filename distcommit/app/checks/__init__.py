"""Checks of a job before it runs, its flow, the dry run, and templates of new job files.

This package must not write to the job's folders, except for probes of remote folders, and must not start Spark. Start
reading at `job_check`.
"""
