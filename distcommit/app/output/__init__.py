"""What is published and what targets hold, told by footers and ledgers alone, and whether it is exact.

Must not believe the store where it says what the output holds, nor change anything. Start reading at `audit`.
"""
