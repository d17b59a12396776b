"""A run as a job begins it: its store and session opened, its record kept, people told of how it ended.

Must not know how a run commits: that is `engine`. Start reading at `begun`.
"""
