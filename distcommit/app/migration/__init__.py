"""Import state from other systems and jobs, compare with them, and change the number of buckets. Must not change the
other system. Start reading at `import_watermarks`.
"""
