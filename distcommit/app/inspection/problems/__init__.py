"""The problems of a job: the catalogue of their kinds, and the checks that detect them. Must not change anything.
`problem_detection` makes the problems of a job from the kinds in `job_problems` and `dataset_problems`. Start reading
at `problem_kind`.
"""
