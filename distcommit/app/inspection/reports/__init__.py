"""The report of one run, and its parts."""
