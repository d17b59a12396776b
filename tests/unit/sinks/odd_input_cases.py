"""Column names and values that a database would change: kept, or rejected by name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import Committed
from tests.unit.sinks.databases.commit_steps import numbers, refused
from tests.unit.sinks.databases.table_sink_cases import TableTarget

KEPT_NAMES = ["a b", 'q"uote', "per%cent", "%s", "semi;colon", "br{ace}", "back`tick", "select", "ü", " lead", "0"]


class OddInputCases:
    """Cases to subclass where a fixture `target` is a `TableTarget`.

    Attributes:
        refused_names: Column names, as in the batch, that the database can't have, with part of the error message.
        keeps_negative_zero: Whether -0.0 stays -0.0 in a column.
        keeps_negative_zero_in_json: Whether -0.0 stays -0.0 in a struct or list.
    """

    refused_names: ClassVar[Mapping[tuple[str, ...], str]] = {}
    keeps_negative_zero: ClassVar[bool] = False
    keeps_negative_zero_in_json: ClassVar[bool] = True

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def test_unusual_column_names_are_kept(self, target: TableTarget, mode: str) -> None:
        settings: dict[str, Any] = {"mode": "upsert", "keys": ["n"]} if mode == "upsert" else {}
        sink = target.sink(evolve="add_columns", **settings)
        rows = pa.record_batch({"n": [1], **{name: [number] for number, name in enumerate(KEPT_NAMES)}})
        assert target.commit(sink, target.prepare(sink, "a", 1, rows)) == [Committed()]
        listed = ", ".join(map(target.quoted, KEPT_NAMES))
        assert target.rows("a", listed) == [tuple(range(len(KEPT_NAMES)))]
        more = pa.record_batch({"n": [2], "and %s more": [1]})
        assert target.commit(sink, target.prepare(sink, "a", 2, more)) == [Committed()]
        assert target.rows("a", f"n, {target.quoted('and %s more')}") == [(1, None), (2, 1)]

    def test_table_with_an_unusual_name_is_audited(self, target: TableTarget) -> None:
        sink = target.sink(tags=True)
        assert target.commit(sink, target.prepare(sink, "50%s", 1)) == [Committed()]
        committer = sink.open_committer(target.context)
        assert committer.visible_rows("50%s", "main") == 3
        committer.close()

    def test_names_that_no_column_can_have_are_rejected_before_anything_is_written(self, target: TableTarget) -> None:
        alike = {("Id", "id"): "but for its case", ("",): "an empty name", ("a\0b",): "a NUL character"}
        for names, message in {**alike, **self.refused_names}.items():
            rows = pa.record_batch([pa.array([1])] * len(names), names=[*names])
            sink = target.sink(evolve="add_columns")
            with pytest.raises(ConfigurationError, match="cannot have a column of this name") as error:
                target.prepare(sink, "a", 1, rows)
            assert message in str(error.value), names
            assert "a" not in target.tables()

    def test_negative_zero_is_kept_or_rejected(self, target: TableTarget) -> None:
        sink, rows = target.sink(), pa.record_batch({"n": [0.0, -0.0]})
        request = target.prepare(sink, "a", 1, rows)
        if not self.keeps_negative_zero:
            refused(target.beside_others(sink, request), "-0.0")
            return
        assert target.commit(sink, request) == [Committed()]
        assert sorted(math.copysign(1, value) for (value,) in target.rows("a")) == [-1, 1]

    def test_negative_zero_in_json_is_kept_or_rejected(self, target: TableTarget) -> None:
        sink = target.sink()
        rows = pa.record_batch({"n": [1], "s": pa.array([{"text": '-0.0, "-0.0"', "x": [-0.0]}])})
        request = target.prepare(sink, "a", 1, rows)
        if not self.keeps_negative_zero_in_json:
            refused(target.beside_others(sink, request), "-0.0")
            return
        assert target.commit(sink, request) == [Committed()]
        ((stored,),) = target.rows("a", "s")
        assert math.copysign(1, json.loads(stored)["x"][0]) == -1

    def test_json_text_that_resembles_a_negative_zero_is_kept(self, target: TableTarget) -> None:
        sink = target.sink()
        rows = pa.record_batch({"n": [1], "s": pa.array([{"text": '-0.0, "-0.0\\"', "x": 10.0, "y": -0.05}])})
        assert target.commit(sink, target.prepare(sink, "a", 1, rows)) == [Committed()]

    def test_missing_key_is_rejected_before_anything_is_written(self, target: TableTarget) -> None:
        with pytest.raises(ConfigurationError, match="do not have a column that the setting keys names"):
            target.prepare(target.sink(mode="upsert", keys=["k"]), "a", 1, numbers(1))
