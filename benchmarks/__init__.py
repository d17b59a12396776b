"""Benchmarks that answer one question each, with one command: `python -m benchmarks --help`.

`workloads` prepares what is measured, `arms` are the ways of doing it (ours and what people run today), `runner`
alternates them and checks their results, `questions` put the two together and form ratios, `reports` turns their JSON
into a table and plots. May import all of distcommit; nothing imports it. Start reading at `questions/commit.py`.
"""
