"""File systems behind `core.interfaces.file_system.FileSystem`.

Must not know what is stored. Start reading at `local_disk.local_file_system`.
"""
