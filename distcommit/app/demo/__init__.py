"""The demo: a job on an embedded Kafka broker is killed in mid-commit and resumed, and its records are counted.

Jobs must not import it. Start reading at `demo_run`.
"""
