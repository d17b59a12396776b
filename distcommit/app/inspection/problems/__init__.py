"""The problems of a job: the catalogue of their kinds, and the checks that detect them. Must not change anything.
Start reading at `problem_kind`.
"""
