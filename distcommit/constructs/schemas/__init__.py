"""Which schemas the records of a dataset may have.

Must not store them: `stores.schemas` does. Start reading at `evolution`.
"""
