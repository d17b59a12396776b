"""Columns and schemas of records: types in a job file, declared columns, compatibility, and policies for new schemas.

Must not store schemas: `stores.schemas` does. Start reading at `columns`, then `evolution`.
"""
