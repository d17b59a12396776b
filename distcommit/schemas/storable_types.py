"""Tables of the types that targets can store, and a walk over nested Arrow types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

IsType = Callable[[pa.DataType], bool]
_of = pa.types
ALL_LISTS: Sequence[IsType] = (_of.is_list, _of.is_large_list, _of.is_fixed_size_list)
OFFSET_LISTS: Sequence[IsType] = (_of.is_list, _of.is_large_list)


class UnstorableTypeError(Exception):
    """Error of a column or nested field for which a target has no type.

    Attributes:
        path: path of the field, such as `buyer.name`; an item of a list has the path of the list.
        kind: the Arrow type.
    """

    def __init__(self, path: str, kind: pa.DataType) -> None:
        super().__init__(path, kind)
        self.path, self.kind = path, kind


@dataclass(frozen=True, slots=True)
class TypeTable:
    """The Arrow types that a target accepts, and the Arrow type that it stores each of them as.

    A struct, list or map is stored with the stored types of its contents, a dictionary as its values.

    Attributes:
        replaced: the stored types, by type, of types that are stored as another type.
        unchanged: tests of types that are stored unchanged.
        derived: functions that compute the stored type, by the test of the types that they apply to.
        lists: tests of accepted list types.
        maps: whether the target has maps.
        structs: whether the target has structs.
        nested_dictionaries: whether values of dictionaries may be lists, structs or maps.
        item_name: the stored name of a list's items; empty to store the original name.
        all_nullable: whether all nested fields are stored as nullable.
    """

    replaced: Mapping[pa.DataType, pa.DataType]
    unchanged: Sequence[IsType]
    derived: Mapping[IsType, Callable[[pa.DataType], pa.DataType]] = field(default_factory=dict)
    lists: Sequence[IsType] = OFFSET_LISTS
    maps: bool = False
    structs: bool = True
    nested_dictionaries: bool = True
    item_name: str = ""
    all_nullable: bool = False

    def stored(self, kind: pa.DataType, path: str = "") -> pa.DataType:
        """Return the Arrow type that the target stores for values of an Arrow type.

        Args:
            path: path of the column, for errors.

        Raises:
            UnstorableTypeError: if the target has no such type.
        """
        if kind in self.replaced:
            return self.replaced[kind]
        if _of.is_dictionary(kind) and (self.nested_dictionaries or not _of.is_nested(kind.value_type)):
            return self.stored(kind.value_type, path)
        if self.structs and _of.is_struct(kind) and kind.num_fields:
            return pa.struct([self._field(column, f"{path}.{column.name}", column.name) for column in kind])
        if any(is_kind(kind) for is_kind in self.lists):
            return pa.list_(self._field(kind.value_field, path, self.item_name or kind.value_field.name))
        if self.maps and _of.is_map(kind):
            return pa.map_(self.stored(kind.key_type, path), self.stored(kind.item_type, path))
        for is_type, derive in self.derived.items():
            if is_type(kind):
                return derive(kind)
        if any(is_type(kind) for is_type in self.unchanged):
            return kind
        raise UnstorableTypeError(path, kind)

    def _field(self, inner: pa.Field, path: str, name: str) -> pa.Field:
        return pa.field(name, self.stored(inner.type, path), self.all_nullable or inner.nullable)


def replace_types(
    kind: pa.DataType, replace: Callable[[pa.DataType], pa.DataType], *, all_nullable: bool = False
) -> pa.DataType:
    """Replace types within structs, lists and maps. Types of map keys do not change.

    Args:
        replace: returns the new type for a type that is not a struct, list or map.
        all_nullable: whether all nested fields become nullable.
    """

    def replaced(inner: pa.Field) -> pa.Field:
        inner_type = replace_types(inner.type, replace, all_nullable=all_nullable)
        return pa.field(inner.name, inner_type, all_nullable or inner.nullable)

    if _of.is_struct(kind):
        return pa.struct([replaced(inner) for inner in kind])
    if _of.is_list(kind):
        return pa.list_(replaced(kind.value_field))
    if _of.is_large_list(kind):
        return pa.large_list(replaced(kind.value_field))
    if _of.is_fixed_size_list(kind):
        return pa.list_(replaced(kind.value_field), kind.list_size)
    if _of.is_map(kind):
        return pa.map_(kind.key_type, replaced(kind.item_field))
    return replace(kind)


def contains_type(kind: pa.DataType, predicate: IsType) -> bool:
    """Return whether the predicate is true for a type or a type within it."""
    return predicate(kind) or any(contains_type(inner.type, predicate) for inner in inner_fields(kind))


def inner_fields(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields directly within a type as Arrow has them: those of a map are one struct of key and value."""
    return [kind.field(index) for index in range(kind.num_fields)] if _of.is_nested(kind) else []


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type that all Arrow functions accept. Extensions, dictionaries and run-end encodings become the type of
    their values, views become string or binary, and float16 becomes float32.
    """
    if is_extension(kind):
        return plain_type(kind.storage_type)
    if _of.is_dictionary(kind) or _of.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.float16(): pa.float32()}
    return views.get(kind, kind)


def is_string(kind: pa.DataType) -> bool:
    """Return whether a type is a string with offsets of any width."""
    return bool(_of.is_string(kind) or _of.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is binary with offsets of any width."""
    return bool(_of.is_binary(kind) or _of.is_large_binary(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a string or binary."""
    return is_string(kind) or is_bytes(kind)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list with offsets of any width."""
    return any(is_kind(kind) for is_kind in OFFSET_LISTS)


def is_extension(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType)


def is_decimal128_in_scale(kind: pa.DataType) -> bool:
    """Return whether a type is a decimal of at most 38 digits, with a scale from 0 to as many as it has digits."""
    return bool(_of.is_decimal128(kind) and 0 <= kind.scale <= kind.precision)
