"""State carried over: from other systems and files, in comparison with them, and to more buckets.

Must not change what it reads from. Start reading at `imports`.
"""
