"""Names of files and folders, one module for each root. Each name is built and parsed by one function, or is one
constant.

Must not touch a file: callers that create or list files ask for names here. Start reading at `parts`, then `store`,
`staging`, `output`.
"""
