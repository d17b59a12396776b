"""Names of files that only sinks with a target of their own use: tables' data files and ledgers, and messages.

Files in the job's own folders are named in `protocol.paths`.
"""

from __future__ import annotations

_DATA_FILE_NOTE = ".path"


def data_file_name(epoch: int, attempt: str, number: int) -> str:
    """Return the name of an attempt's data file of that number in a table's folder."""
    return f"{_data_file_start(epoch, attempt)}{number:05d}.parquet"


def is_data_file_of(path: str, epoch: int, attempt: str) -> bool:
    """Return whether a file's name is that of a data file of this attempt."""
    return path.rpartition("/")[2].startswith(_data_file_start(epoch, attempt))


def _data_file_start(epoch: int, attempt: str) -> str:
    return f"distcommit-{epoch:06d}-{attempt}-"


def ledger_file_name(checksum: str) -> str:
    """Return the name of a file of a table's ledger; `checksum`: SHA-256 of its bytes."""
    return f"{checksum}.json"


def ledger_text_name(number: int) -> str:
    """Return the name of the file with a ledger's text, for tables that can store only a number."""
    return f"txn-{number:016x}.json"


def data_file_note(name: str) -> str:
    """Return the name of the note with the location of a data file of that name."""
    return f"{name}{_DATA_FILE_NOTE}"


def is_data_file_note(name: str) -> bool:
    """Return whether a file's name is that of such a note."""
    return name.endswith(_DATA_FILE_NOTE)


def messages_name(number: int) -> str:
    """Return the name of a file of messages that are staged for a topic."""
    return f"messages-{number}.arrow"
