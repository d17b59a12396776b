"""Names of files that only sinks use; those in the job's own folders are in `protocol.paths`."""

from __future__ import annotations

_DATA_FILE_NOTE = ".path"


def data_file_name(epoch: int, attempt: str, number: int) -> str:
    return f"{_data_file_start(epoch, attempt)}{number:05d}.parquet"


def is_data_file_of(path: str, epoch: int, attempt: str) -> bool:
    return path.rpartition("/")[2].startswith(_data_file_start(epoch, attempt))


def _data_file_start(epoch: int, attempt: str) -> str:
    return f"distcommit-{epoch:06d}-{attempt}-"


def ledger_file_name(checksum: str) -> str:
    return f"{checksum}.json"


def ledger_text_name(number: int) -> str:
    return f"txn-{number:016x}.json"


def data_file_note(name: str) -> str:
    return f"{name}{_DATA_FILE_NOTE}"


def is_data_file_note(name: str) -> bool:
    return name.endswith(_DATA_FILE_NOTE)


def messages_name(number: int) -> str:
    return f"messages-{number}.arrow"
