"""A converter of the user's own: a class that the executors can import."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.settings import ConstructSettings
from distcommit.model.constructs import Converted, Converter
from distcommit.model.user_class import make_named


class PythonConverter(ConstructSettings, Converter, frozen=True, extra="forbid", ignored_types=(cached_property,)):
    """Names a subclass of `Converter` as `package.module:Class`; it is made with `options` as keyword arguments."""

    type: Literal["python"]
    class_name: str = Field(alias="class")
    options: dict[str, Any] = Field(default_factory=dict)

    @cached_property
    def made(self) -> Converter:
        """The converter itself.

        Raises:
            ConfigurationError: if the class can't be imported or made, or is no `Converter`.
        """
        return make_named(Converter, "converter", self.class_name, self.options)  # type: ignore[type-abstract]

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": {k: v for k, v in state["__dict__"].items() if k != "made"}}

    @property
    def makes_several(self) -> bool:  # type: ignore[override]
        return self.made.makes_several

    def convert_schema(self, schema: pa.Schema) -> pa.Schema | None:
        return self.made.convert_schema(schema)

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        return self.made.convert(batch)

    def close(self) -> None:
        if "made" in self.__dict__:
            self.made.close()


SETTINGS = PythonConverter
