"""The settings class of each section of a job file.

Owns values, descriptions and rules within a section. It must not hold rules between sections, which are in
`job_file.job_config`. Start reading at `folder_and_run_settings` and `flow_settings`.
"""
