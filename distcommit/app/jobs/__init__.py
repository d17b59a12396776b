"""The Python interface of a job: read its store, run and change it, preview it. Must not contain the operations, which
are in the packages below. Start reading at `job`.
"""
