"""What happens to the records of a work unit inside a task: extracted, decoded, written, counted.

Must not commit anything. Start reading at `attempt`.
"""
