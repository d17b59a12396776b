"""What a person does to a stored job: watermarks set or taken over, stores rebuilt or put into other buckets, output
retained, errors fed again.

Must not go round the logs: each act is records, or a run. Start reading at `watermarks`, then `rebuild_plan`.
"""
