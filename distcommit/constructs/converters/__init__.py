"""Converters: each makes records of one schema out of records of another.

They must not know where records came from; each result names the row that it was made of. Start reading at
`projection`, then `cast`.
"""
