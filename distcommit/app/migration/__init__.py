"""Carries state over from other systems and jobs, compares with them, and changes the number of buckets. Must not
change what it reads from. Start reading at `imports`."""
