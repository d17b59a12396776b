"""Converters, which make records of one schema from records of another.

Must not know where records came from; results name their input rows. Start reading at `projection`, then `cast`.
"""
