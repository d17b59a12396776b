"""Checks of a job before it runs, its flow, the dry run, and templates of new job files.

This package writes nothing to the job's folders and starts no Spark. Start reading at `check`.
"""
