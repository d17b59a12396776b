"""The vocabulary of all other packages: datasets, work units, watermarks, steps, records, file systems and errors.

Must not import another package of distcommit. Start reading at `work_units`, then `interfaces.commit_step`.
"""
