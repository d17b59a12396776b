"""Names of files that only sinks with a target of their own know: tables' data files and ledgers, and messages.

What a job has in its own folders is named in `protocol.paths`.
"""

from __future__ import annotations

_DATA_FILE_NOTE = ".path"


def data_file_name(epoch: int, attempt: str, number: int) -> str:
    """Name of an attempt's data file of that number, where a table has its own."""
    return f"{_data_file_start(epoch, attempt)}{number:05d}.parquet"


def is_data_file_of(path: str, epoch: int, attempt: str) -> bool:
    """Whether a file's name is one that an attempt gives to its data files."""
    return path.rpartition("/")[2].startswith(_data_file_start(epoch, attempt))


def _data_file_start(epoch: int, attempt: str) -> str:
    return f"distcommit-{epoch:06d}-{attempt}-"


def ledger_file_name(checksum: str) -> str:
    """Name of a file of a table's ledger: the SHA-256 of its bytes."""
    return f"{checksum}.json"


def ledger_text_name(number: int) -> str:
    """Name of the file with the text of a ledger whose table can keep nothing but a number."""
    return f"txn-{number:016x}.json"


def data_file_note(name: str) -> str:
    """Name of the note that says where a table's data file of that name is to be."""
    return f"{name}{_DATA_FILE_NOTE}"


def is_data_file_note(name: str) -> bool:
    """Whether a file's name is that of such a note."""
    return name.endswith(_DATA_FILE_NOTE)


def messages_name(number: int) -> str:
    """Name of a file of messages that are staged for a topic."""
    return f"messages-{number}.arrow"
