"""Benchmarks that answer one question each, with one command: `python -m benchmarks --help`.

`workloads` prepares the measured work, and `arms` are the ways of doing it: the product's and those in common use.
`runner` alternates them and checks their results, `questions` combine both and form ratios, and `reports` turns their
JSON into a table and plots. Benchmarks may import all of distcommit; no module imports them. Start reading at
`questions/commit.py`.
"""
