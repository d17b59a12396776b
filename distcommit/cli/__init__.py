"""The command `distcommit`: arguments, progress, tables and exit codes.

Must not do anything that `app.jobs.job` can't. Start reading at `main`, then `commands.running`.
"""
