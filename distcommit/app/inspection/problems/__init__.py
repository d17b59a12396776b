"""The problems of a job: the catalogue of their kinds, and the checks that detect them. Must not change anything.
`problem_detection` makes the problems of a job from the kinds in `job_problem_kinds` and `dataset_problem_kinds`.
Start reading at `problem_kind`.
"""
