"""A converter of the user's own: a class that the executors can import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

import pyarrow as pa

from distcommit.constructs.custom_class import OwnClass
from distcommit.constructs.settings import ConstructSettings
from distcommit.core.interfaces.constructs import Converted, Converter, KeptSchemas
from distcommit.core.interfaces.custom_class import custom_code, make_named


class PythonConverter(OwnClass, ConstructSettings, Converter, frozen=True, extra="forbid"):
    """Names a subclass of `Converter`."""

    type: Literal["python"]

    @cached_property
    def made(self) -> Converter:
        """The converter itself.

        Raises:
            ConfigurationError: if the class can't be imported or made, or is no `Converter`.
        """
        return make_named(Converter, "converter", self.class_name, self.given)  # type: ignore[type-abstract]

    @property
    def makes_several(self) -> bool:  # type: ignore[override]
        with custom_code("converter", self.class_name):
            return self.made.makes_several

    @property
    def groups_schemas(self) -> bool:  # type: ignore[override]
        return self.made.groups_schemas

    def convert_schema(self, schema: pa.Schema) -> pa.Schema | None:
        with custom_code("converter", self.class_name):
            return self.made.convert_schema(schema)

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        return self.made.convert(batch)

    def begin_work_unit(self, dataset_urn: str) -> None:
        with custom_code("converter", self.class_name):
            self.made.begin_work_unit(dataset_urn)

    def keep_schemas(self, kept: KeptSchemas) -> None:
        with custom_code("converter", self.class_name):
            self.made.keep_schemas(kept)

    def know_schemas(self, ids: Sequence[int]) -> None:
        with custom_code("converter", self.class_name):
            self.made.know_schemas(ids)

    def schemas_known(self) -> Sequence[int]:
        with custom_code("converter", self.class_name):
            return self.made.schemas_known()

    def close(self) -> None:
        if "made" in self.__dict__:
            self.made.close()


SETTINGS = PythonConverter
