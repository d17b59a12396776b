"""Two-phase commit of databases: writers prepare transactions, and the committer commits them by their names.

Must not contain statements of one database; its sink has them. Start reading at `prepared_transactions`.
"""
