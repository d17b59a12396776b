"""Names of files that only sinks use: data files and ledgers of tables, and staged messages.

Names of files in the job's own folders are in `protocol.paths`.
"""

from __future__ import annotations

_DATA_FILE_NOTE = ".path"


def data_file_name(epoch: int, attempt: str, number: int) -> str:
    """Return the name of a data file in a table's folder; `number` counts the attempt's files."""
    return f"{_data_file_start(epoch, attempt)}{number:05d}.parquet"


def is_data_file_of(path: str, epoch: int, attempt: str) -> bool:
    """Return whether the path's file name is that of a data file of this attempt."""
    return path.rpartition("/")[2].startswith(_data_file_start(epoch, attempt))


def _data_file_start(epoch: int, attempt: str) -> str:
    return f"distcommit-{epoch:06d}-{attempt}-"


def ledger_file_name(checksum: str) -> str:
    """Return the name of a ledger file, given the SHA-256 of its bytes."""
    return f"{checksum}.json"


def ledger_text_name(number: int) -> str:
    """Return the name of the ledger file of a table that can store only a number as its reference."""
    return f"txn-{number:016x}.json"


def data_file_note(name: str) -> str:
    """Return the name of the staged file that records the location of the named data file."""
    return f"{name}{_DATA_FILE_NOTE}"


def is_data_file_note(name: str) -> bool:
    """Return whether a name is a result of `data_file_note`."""
    return name.endswith(_DATA_FILE_NOTE)


def messages_name(number: int) -> str:
    """Return the name of a file of staged Kafka messages."""
    return f"messages-{number}.arrow"
