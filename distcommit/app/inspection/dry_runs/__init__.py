"""Predicts the effects of the next run or of an operator command: replays, deletions, and buckets that cannot be
recovered.

Must not change anything; it uses the checks of the run or command itself. Start reading at `replay_plan`.
"""
