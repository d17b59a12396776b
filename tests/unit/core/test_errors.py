"""Errors can be pickled between processes and name a remedy."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

import distcommit
from distcommit.app.job_file.problems.setting_problems import SettingProblem
from distcommit.core import errors
from distcommit.core.watermark import Watermark

PARTS: dict[str, tuple[Any, ...]] = {  # of constructors with required arguments of their own
    "QueryChangedError": (SimpleNamespace(name="t", incarnation="id of query a"), Watermark({"0": 1}, "id of query b")),
    "JobFileError": ([SettingProblem("job", "must be set")],),
}


def _below(kind: type[errors.DistcommitError]) -> Iterator[type[errors.DistcommitError]]:
    for below in kind.__subclasses__():
        yield below
        yield from _below(below)


def test_every_error_class_of_the_package_pickles_with_its_text_and_attributes() -> None:
    for module in pkgutil.walk_packages(distcommit.__path__, "distcommit."):
        if module.name.rpartition(".")[2] != "__main__":
            with suppress(ImportError):  # of an optional package
                importlib.import_module(module.name)
    kinds = {kind for kind in _below(errors.DistcommitError) if kind.__module__.startswith("distcommit.")}
    assert {"PlanError", "QueryChangedError", "CheckFailedError", "JobFileError"} <= {kind.__name__ for kind in kinds}
    for kind in kinds:
        error = kind(*PARTS.get(kind.__name__, ("it failed",)))
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DistcommitError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_pickles_with_its_parts(kind: type[errors.DistcommitError]) -> None:
    error = kind("it failed", expected="a", found="b", todo="c", dataset="d", epoch=3)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error) == f"{kind.id}: it failed [dataset=d, epoch=3]; expected a; found b. To do: c"


def test_error_keeps_the_id_of_its_raise_site_when_pickled_copied_or_read_from_its_text() -> None:
    error = errors.ConfigurationError("it failed", id="JOB_FILE_INVALID", todo="correct it", dataset="d")
    texts = [str(pickle.loads(pickle.dumps(error))), str(errors.copied(error)), errors.error_text(error)]
    assert {*texts, str(errors.ConfigurationError.from_text(str(error)))} == {
        "JOB_FILE_INVALID: it failed [dataset=d]. To do: correct it"
    }


def test_chain_of_errors_prints_the_outer_subject_the_innermost_cause_and_one_remedy() -> None:
    inner = errors.TransientError("no answer", host="h", todo="start it")
    middle = errors.SinkUnavailableError("the sink cannot be opened", found=errors.error_text(inner), todo="repair it")
    text = "SOURCE_UNAVAILABLE: no dataset could be planned; found SERVICE_UNAVAILABLE: no answer [host=h]. To do: "
    for todo, printed in (("", "repair it"), ("run again", "run again")):
        assert str(errors.SourceUnavailableError("no dataset could be planned", found=str(middle), todo=todo)) == (
            text + printed
        )


LONG = errors.StaleStoreError(
    "it failed", found="x" * 3000, todo="`distcommit store rebuild` repairs it. Then run again"
)


@pytest.mark.parametrize("limit", [250, 500, 1000, 2000])
def test_truncated_text_keeps_its_remedy_whole(limit: int) -> None:
    cut = errors.plain_text(LONG, limit)
    assert len(cut) <= limit
    assert cut.startswith("STORE_OUTPUT_MISMATCH: it failed; found xxx")
    assert cut.endswith("x.... To do: `distcommit store rebuild` repairs it. Then run again")
    assert errors.plain_text(cut, limit) == cut


@pytest.mark.parametrize("limit", [150, 300, 2000])
def test_truncated_text_keeps_the_beginning_of_the_actual_state(limit: int) -> None:
    outer, inner = errors.SinkUnavailableError("x" * 3000), errors.LostError("its rows are gone", found="y" * 3000)
    text = str(errors.SourceUnavailableError("z" * 3000, found=str(outer), todo="repair it"))
    text = text.replace("x" * 3000, str(inner))
    cut = errors.shortened_cause(text, limit)
    assert len(errors.split_remedy(cut)[0]) <= limit
    assert cut.startswith("SOURCE_UNAVAILABLE: zzz")
    assert "zz...; found SINK_UNAVAILABLE: STEP_LOST: its rows are gone" in cut
    assert cut.endswith("y.... To do: repair it")


def test_remedy_stays_whole_if_only_the_beginning_of_the_cause_has_room() -> None:
    text = errors.plain_text(errors.LostError("it failed" * 50, todo="y" * 900), 1000)
    assert (len(text), text[:18], text[-911:]) == (1000, "STEP_LOST: it fail", f"... To do: {'y' * 900}")


@pytest.mark.parametrize("limit", [100, 300, 500])
def test_remedy_longer_than_the_limit_stays_whole(limit: int) -> None:
    text = errors.plain_text(errors.LostError("it failed" * 50, todo="y" * 630), limit)
    assert text.startswith("STEP_LOST: it f")
    assert text.endswith(f"... To do: {'y' * 630}")
    assert len(text) < 630 + len(". To do: ") + 65
    assert errors.plain_text(text, limit) == text


def test_text_of_another_program_after_the_mark_of_a_remedy_is_truncated() -> None:
    assert len(errors.plain_text(errors.LostError("it failed", todo="y" * 2_001), 300)) == 300
