"""The job file: typed sections, the types that they name, and the locations of a job's folders. Must not read the
store, beyond opening it. Start reading at `load_job_file` and `job_config`."""
