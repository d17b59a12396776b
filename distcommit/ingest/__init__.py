"""What happens to a work unit's records inside a task: extracted, decoded, written, counted.

Must not commit anything. Start reading at `flow`.
"""
