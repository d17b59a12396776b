"""Names of files and folders, a module for each root: each is made, and read, by one function or is one constant here.

Must not touch a file: who puts and lists asks for names. Start reading at `parts`, then `store`, `staging`, `output`.
"""
