"""Names of files and folders, each built and parsed in one place.

Must not touch files. Start reading at `shared_names`.
"""
