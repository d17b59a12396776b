"""Names of files and folders, one module for each root. One function or constant builds and parses each name.

The package must not touch files: callers that create or list files ask for names here. Start reading at
`shared_names`, then `store`, `staging`, `output`.
"""
