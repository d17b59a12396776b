"""Sink figures: an unavailable target is missing with the reason, and never has a figure."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.arms import delta as delta_arms
from benchmarks.questions import sinks as question
from benchmarks.questions.sinks import FIGURES, Answer, Size, sinks
from benchmarks.runner import Tell, WrongResultError
from tests.benchmarks.commands import answer
from tests.servers.process import ServerUnavailableError

SIZE = Size(records=10, tables=2, repeats=1, seed=1)


def test_unavailable_target_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(size: Size, folder: Path, tell: Tell) -> Answer:
        raise ServerUnavailableError("no such server here")

    def answers(size: Size, folder: Path, tell: Tell) -> Answer:
        return Answer({"a_over_b": size.records / 4}, notes=["read it so"])

    monkeypatch.setattr(
        question, "_QUESTIONS", {("postgresql_over_copy",): refuses, ("a_over_b", "not_given"): answers}
    )
    by_sink = sinks(SIZE, tmp_path, lambda _: None)
    assert by_sink.ratios == {"a_over_b": 2.5}
    assert by_sink.skipped["postgresql_over_copy"] == "no such server here"
    assert by_sink.skipped["not_given"] == "its question gave no figure"
    assert set(by_sink.skipped) == {*FIGURES, "not_given"}
    assert by_sink.notes == ["read it so"]
    only = sinks(SIZE, tmp_path, lambda _: None, frozenset({"postgresql_over_copy"}))
    assert not only.ratios
    assert only.skipped["a_over_b"] == "not asked for"


def test_each_figure_is_there_or_missing_with_the_reason(tmp_path: Path) -> None:
    results = answer("sinks", "--records", "1", "--figures", "none", folder=tmp_path)
    assert results.question == "sinks"
    assert {*FIGURES} <= {*results.ratios, *results.skipped}
    assert all(results.skipped.values())


def test_delta_is_measured_against_its_own_append(tmp_path: Path) -> None:
    size = Size(records=2_000, tables=1, repeats=2, seed=1)
    answers = sinks(size, tmp_path, lambda _: None, frozenset({"delta_over_append"}))
    assert set(answers.ratios) == {"delta_over_append", "delta_over_append_without_bounds"}
    assert {(sample.arm, sample.repeat) for sample in answers.samples} == {
        (arm, repeat) for arm in ("delta", "delta_append", "delta_append_without_bounds") for repeat in range(2)
    }


def test_unequal_output_gives_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = Size(records=2_000, tables=2, repeats=1, seed=1)
    monkeypatch.setattr(question, "_CATALOG_CALL_S", 0.0)
    monkeypatch.setattr(question, "_APPENDS", 1)
    answers = sinks(size, tmp_path, lambda _: None, frozenset({"iceberg_over_append"}))
    assert set(answers.ratios) == {"iceberg_over_append", "catalog_wall_s", "catalog_wall_making_s"}
    append = delta_arms.by_append

    def leaves_one_out(folder: Path, records: pa.Table, *, bounds: bool) -> float:
        monkeypatch.setattr(delta_arms, "_count", lambda *_: None)
        return append(folder, records.slice(1), bounds=bounds)

    monkeypatch.setattr(delta_arms, "by_append", leaves_one_out)
    with pytest.raises(WrongResultError, match="rows and codecs"):
        sinks(size, tmp_path, lambda _: None, frozenset({"delta_over_append"}))
