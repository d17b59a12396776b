"""Predicts what the next run or an operator command would replay, delete, or be unable to recover.

Must not change anything; it uses the checks that the run or command makes itself. Start reading at `replay_plan`.
"""
