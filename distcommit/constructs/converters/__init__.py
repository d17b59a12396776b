"""Converters, which make records of one schema from records of another.

Converters must not know where records came from; each result names the input row that it was made from. Start reading
at `projection`, then `cast`.
"""
