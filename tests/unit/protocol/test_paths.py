"""Paths and names: step paths are validated by their text alone, and file names are parsed as they were built and stay
stable.
"""

from __future__ import annotations

import itertools

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.work_units import StagedFile
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.path_checks import check_relative
from distcommit.protocol.paths.output import (
    LEDGERS,
    is_published_name,
    published_epoch,
    published_name,
    published_start,
)
from distcommit.protocol.paths.shared_names import OWNER, OWNERSHIP_FOLDER, work_unit_name
from distcommit.protocol.paths.staging import (
    SPOOL_INDEX,
    SPOOLED_FRAMES,
    attempt_folder,
    attempt_note,
    attempt_of,
    noted_attempt,
    rows_name,
    spooled_dataset,
    spooled_micro_batch,
    spooled_query,
    staged_name,
    work_unit_of,
)
from distcommit.protocol.paths.store import (
    has_checksum,
    is_table,
    number_of,
    numbered_name,
    progress_name,
    progress_task,
    run_table_name,
    run_table_phase,
    set_aside_folder,
    table_file_name,
    task_states_start,
    writer_of,
)
from distcommit.protocol.paths.temporary_and_probes import (
    is_probe,
    is_store_probe,
    is_temporary,
    lasting_name,
    output_probe_name,
    probed_bucket,
    store_probe_name,
    table_probe_name,
    temporary_name,
)
from distcommit.sinks.base.file_names import (
    data_file_name,
    data_file_note,
    is_data_file_note,
    is_data_file_of,
    ledger_file_name,
    ledger_text_name,
    messages_name,
)
from distcommit.steps.rename_step import FsRenameCommitStep


@pytest.mark.thorough
def test_short_path_validation_equals_that_of_each_component() -> None:
    """The fast check of many steps checks each folder once. Its answer equals the check of each component, whichever
    path is invalid, also after a valid file of the same folder.
    """
    context = StepContext(LocalFileSystem(), "/staging", "/output")

    def steps_of(*paths: tuple[str, str]) -> int:
        files = [StagedFile(staged, final, 1, 1, 1, 1) for staged, final in paths]
        return len(FsRenameCommitStep.of_all(context, files))

    for length in range(8):
        for letters in itertools.product("a./\0", repeat=length):
            path = "".join(letters)
            beside = path.rpartition("/")[0] + "/b" if "/" in path else "b"
            in_turn = [(("b", path),), (("b", "b"), (path, "b")), (("b", "b"), ("b", path)), (("c/b", path),)]
            if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
                with pytest.raises(ConfigurationError):
                    check_relative(path)
                for paths in in_turn:
                    with pytest.raises(ConfigurationError):
                        steps_of(*paths)
                with pytest.raises(ConfigurationError):
                    steps_of((beside, beside), (path, beside))
            else:
                assert check_relative(path) == path
                for paths in [*in_turn, ((beside, beside), (path, beside))]:
                    assert steps_of(*paths) == len(paths)


NONCE = "5" * 32


def test_names_on_disk_are_stable() -> None:
    start = published_start(7, work_unit_name(3, 12), NONCE)
    assert published_name(start, 1, ".parquet") == f"0000000007-00003_000012-{NONCE}-0001.parquet"
    assert (staged_name(1, ".csv.gz"), staged_name(2)) == ("0001.csv.gz", "0002")
    assert temporary_name("000000000001.seg", NONCE) == f".tmp-000000000001.seg-{NONCE}"
    assert output_probe_name(3, NONCE) == f".probe-3-{NONCE}"
    assert store_probe_name(NONCE) == f"probe-{NONCE}"
    assert table_probe_name(NONCE) == f"_distcommit-probe-{NONCE}"
    assert set_aside_folder(7) == "set_aside/epoch=0000000007"


def test_names_of_a_table_s_data_files_are_stable() -> None:
    name = data_file_name(7, NONCE, 3)
    assert name == f"distcommit-000007-{NONCE}-00003.parquet"
    assert is_data_file_of(f"/table/a=1/{name}", 7, NONCE)
    assert not is_data_file_of(f"/table/{name}", 70, NONCE)
    assert not is_data_file_of(f"/distcommit-000007-{NONCE}-/other", 7, NONCE)
    assert data_file_note(name) == f"{name}.path"
    assert is_data_file_note(data_file_note(name))
    assert not is_data_file_note(name)


def test_published_name_is_parsed_as_it_was_built() -> None:
    name = published_name(published_start(7, work_unit_name(3, 12), NONCE), 1, ".csv.gz")
    assert is_published_name(name)
    assert published_epoch(name) == 7
    assert not is_published_name(staged_name(1, ".csv.gz"))


def test_work_unit_name_too_long_for_a_file_is_reported() -> None:
    with pytest.raises(ConfigurationError, match="at most 240 bytes"):
        published_start(1, "w" * 240, NONCE)


def test_longest_work_unit_name_fits_a_file_name() -> None:
    room = 240 - len(published_start(1, "", NONCE))
    assert len(published_start(1, "w" * room, NONCE)) == 240
    with pytest.raises(ConfigurationError):
        published_start(1, "w" * (room + 1), NONCE)


def test_temporary_name_contains_its_final_name() -> None:
    name = temporary_name(numbered_name(4), NONCE)
    assert is_temporary(name)
    assert number_of(lasting_name(name)) == number_of(lasting_name(numbered_name(4))) == 4
    assert number_of(name) is None


def test_names_of_staged_files_are_stable() -> None:
    folder = attempt_folder(7, 3, work_unit_name(3, 12), NONCE)
    name = folder.rpartition("/")[2]
    assert folder == f"0000000007/bucket=00003/00003_000012.{NONCE}"
    assert (work_unit_of(name), attempt_of(name)) == ("00003_000012", NONCE)
    assert attempt_note(folder) == f"{folder}.open"
    assert noted_attempt(attempt_note(name)) == name
    assert noted_attempt(name) is noted_attempt(temporary_name(attempt_note(name), NONCE)) is None
    assert (rows_name(3), rows_name(3, NONCE), messages_name(12)) == (
        "00003.arrows",
        f"{NONCE}-00003.arrows",
        "messages-12.arrow",
    )
    assert (SPOOLED_FRAMES, spooled_dataset(3), SPOOL_INDEX) == ("batches/frames", "00003", "index.json")
    assert spooled_query("q") == "batches/q"
    assert spooled_micro_batch("q", 4, NONCE) == f"batches/q/4-{NONCE}"


def test_names_of_tables_and_progress_are_stable() -> None:
    name = table_file_name(task_states_start(NONCE, 4), "0123456789abcdef")
    assert name == f"{NONCE}-000004-0123456789abcdef.parquet"
    assert has_checksum(f"/store/{name}", "0123456789abcdef")
    assert not has_checksum(name, "123456789abcdef0")
    assert is_table(name)
    assert not is_table(temporary_name(name, NONCE))
    assert not is_table("_manifest.json")
    assert writer_of(f"/store/task_states/run=a-b/{name}") == NONCE

    table = run_table_name("ingest", 3, NONCE)
    assert table == f"ingest-00003-{NONCE}.parquet"
    assert run_table_phase(table) == "ingest"
    assert not run_table_phase(temporary_name(table, NONCE))
    assert not run_table_phase(f"ingest-00003-{NONCE}.json")

    progress = progress_name("ingest-large", 3, NONCE, 12, 1_700_000_000_000)
    assert progress == f"ingest-large-00003-1700000000000{NONCE}-00000012"
    assert progress_task(progress) == "ingest-large-00003"


def test_names_of_claims_and_ledgers_are_stable() -> None:
    assert (OWNERSHIP_FOLDER, OWNER, LEDGERS) == (".distcommit", "owner.json", ".distcommit/ledgers")
    assert ledger_file_name("00ff") == "00ff.json"
    assert ledger_text_name(255) == "txn-00000000000000ff.json"


@pytest.mark.parametrize("bucket", [0, 12])
def test_probe_name_contains_its_owner(bucket: int) -> None:
    name = output_probe_name(bucket, NONCE)
    for written in (name, temporary_name(name, NONCE)):
        assert probed_bucket(written) == bucket
        assert is_probe(written)
        assert not is_store_probe(written)
    for written in (store_probe_name(NONCE), temporary_name(store_probe_name(NONCE), NONCE)):
        assert is_store_probe(written)
        assert is_probe(written)
        assert probed_bucket(written) is None
    assert probed_bucket("dataset") is None
