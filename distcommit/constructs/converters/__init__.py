"""Converters of records to another schema.

Must not know where records came from; results name their input rows. Start reading at `projection`, then `cast`.
"""
