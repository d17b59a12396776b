"""Schemas of records: declared and inferred columns, the policy of their evolution, coercion of batches, and limits.

Must not know file systems, sources or sinks: `stores.schemas` stores the schema history. Start reading at `evolution`,
then `evolution_policy`.
"""
