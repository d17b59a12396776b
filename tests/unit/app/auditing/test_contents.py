"""The deep audit detects records that differ from the written records although each offset is present once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.app.auditing.files.content_sum_check import SequenceContent
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.io_batching import run_alone
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.formats.encoders import FileFormat
from distcommit.sinks.files.sink import FileSink
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.altered_files import with_values_swapped, without_content_sum
from tests.simulation.programs.parts import files_below, put_file
from tests.simulation.world import World
from tests.unit.engine.driver.machines import OUTPUT, Machine, go
from tests.unit.sinks.files.attempts import FORMATS

SOURCE = ModelSource({"a": ModelDataset({"0": 6, "1": 4}, units=2), "b": ModelDataset({"0": 3})})
MORE = ModelSource({"a": ModelDataset({"0": 9, "1": 4}), "b": ModelDataset({"0": 3})})


def world_of(form: FileFormat) -> World:
    return World(files=FileSink(format=form))


def published(form: FileFormat = "parquet") -> Machine:
    machine = Machine()
    assert go(world_of(form), machine, SOURCE).succeeded
    return machine


def audit(machine: Machine, *, deep: bool = True, at_least_once: bool = False) -> AuditResult:
    return audit_store(World().store(machine), SOURCE.provenance, deep=deep, at_least_once=at_least_once)


def data_files(machine: Machine) -> list[str]:
    return sorted(
        path
        for path in files_below(machine, OUTPUT)
        if path.endswith(tuple(FileSink(format=form).ending for form in FORMATS))
    )


def rewrite(machine: Machine, path: str, change: Callable[[bytes], bytes]) -> None:
    data = change(machine.read_file(path))
    machine.unlink(path)
    put_file(machine, path, data)


def swap(machine: Machine, form: FileFormat, *, summed_again: bool = False) -> str:
    """Swap two values in the first file of dataset a."""
    path = data_files(machine)[0]
    rewrite(
        machine,
        path,
        lambda data: with_values_swapped(data, FileSink(format=form).ending[1:], summed_again=summed_again),
    )
    return path.removeprefix(f"{OUTPUT}/")


def state_of(machine: Machine, urn: str) -> DatasetState:
    return World().store(machine).bucket_log(0).refresh().state_of(urn)


@pytest.mark.parametrize("form", FORMATS)
def test_audit_of_untouched_output_is_exact(form: FileFormat) -> None:
    machine = published(form)
    for deep in (True, False):
        result = audit(machine, deep=deep)
        assert (result.exact, result.altered_count, result.files_without_sum) == (True, 0, 0), result
    assert state_of(machine, "a").done_content_sum


@pytest.mark.parametrize("at_least_once", [False, True])
@pytest.mark.parametrize("form", FORMATS)
def test_deep_audit_detects_values_swapped_between_offsets(form: FileFormat, at_least_once: bool) -> None:
    machine = published(form)
    path = swap(machine, form)
    result = audit(machine, at_least_once=at_least_once)
    assert (result.exact, result.passed, result.altered_count) == (False, False, 1)
    assert (result.gaps, result.duplicates, result.unknown_files, result.records) == (0, 0, [], 13)
    (problem,) = result.altered
    assert problem.startswith(f"{path}: ")
    for part in ("expected content sum", "found", "restore the file from a backup"):
        assert part in problem
    assert audit(machine, deep=False).exact, "an audit of the metadata does not read the data"


@pytest.mark.parametrize("deep", [True, False])
@pytest.mark.parametrize("form", FORMATS)
def test_audit_detects_a_substituted_file_by_the_content_sum_in_the_log(form: FileFormat, deep: bool) -> None:
    machine = published(form)
    swap(machine, form, summed_again=True)
    result = audit(machine, deep=deep)
    assert (result.exact, result.altered_count) == (False, 1)
    (problem,) = result.altered
    assert problem.startswith("a: the 4 files of epoch")
    assert state_of(machine, "a").done_content_sum in problem


def test_checkpoint_keeps_the_newest_content_sum_and_older_files_are_compared_with_their_footers() -> None:
    machine = published()
    assert go(World(), machine, MORE).succeeded
    run_alone(World().store(machine).bucket_log(0).checkpoint(at_least=1))
    assert audit(machine).exact
    swap(machine, "parquet")
    assert audit(machine).altered_count == 1
    swap(machine, "parquet")  # undo the swap
    assert audit(machine).exact
    newest = data_files(machine)[4]
    rewrite(machine, newest, lambda data: with_values_swapped(data, "parquet", summed_again=True))
    assert [problem.partition(" files")[0] for problem in audit(machine).altered] == ["a: the 1"]


@pytest.mark.parametrize("form", FORMATS)
def test_files_without_content_sums_are_counted_and_audited_by_offsets(form: FileFormat) -> None:
    machine = published(form)
    for path in data_files(machine):
        rewrite(machine, path, lambda data: without_content_sum(data, FileSink(format=form).ending[1:]))
    result = audit(machine)
    assert (result.exact, result.files_without_sum, result.files, result.records) == (True, 5, 5, 13)


SUM, OTHER = "00000000000000aa", "00000000000000bb"
DONE = DatasetState("a", done_epoch=3, done_files=2, done_records=5, done_content_sum="0000000000000165")
FOOTERS = [
    Footer(dataset_urn="a", epoch=3, run_id="r", work_unit_id="w", attempt="x", records=n, content_sum=text)
    for n, text in ((2, SUM), (3, OTHER))
]


def closed_status(state: DatasetState, *footers: Footer) -> str:
    content = SequenceContent(state)
    for footer in footers:
        content.add(footer)
    return content.altered()


def test_sequence_is_reported_as_altered_only_if_its_content_sum_is_conclusive() -> None:
    one, two = FOOTERS
    other = replace(two, content_sum=SUM)
    older = replace(other, epoch=2)
    assert closed_status(DONE, one, two, older) == ""
    assert "found 0000000000000154" in closed_status(DONE, one, other, older)
    assert closed_status(DONE, one) == "", "a missing file is reported as a gap"
    assert closed_status(DONE, one, other, two) == "", "an additional file is reported as duplicates"
    assert closed_status(DONE, one, replace(other, records=4)) == "", "additional records are reported as duplicates"
    assert closed_status(DONE, one, replace(two, content_sum="")) == "", (
        "the file was written before content sums existed"
    )
    assert closed_status(replace(DONE, done_content_sum=""), one, other) == "", (
        "the sequence was sealed before content sums existed"
    )
    assert closed_status(replace(DONE, accepted_epochs=(3,)), one, other) == "", "an operator accepted the sequence"
