"""The section `sink` of type `python`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from distcommit.core.errors import ConfigurationError, plain_text
from distcommit.core.interfaces.sink import BY_DATASET, Sink, SinkSettings
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.custom_class import CustomClass


class PythonSink(CustomClass, SinkSettings, interface=Sink, section="sink", unguarded=frozenset({"open_writer"})):
    """A custom sink: a subclass of `Sink`."""

    type: Literal["python"]

    def check_instance(self, instance: Any) -> None:
        """Raise ConfigurationError without a name, or with only one of `grouped_by` and `commit_group`."""
        name = getattr(instance, "name", None)
        if not isinstance(name, str) or not name:
            raise ConfigurationError(
                "the sink's class has no name",
                id="CUSTOM_CLASS_INVALID",
                class_name=self.class_name,
                expected='a class attribute `name = "..."`, which is stored with every commit',
                found=repr(name),
            )
        _check_grouping(instance, self.class_name)

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        with self.guard():
            return {"name": FixedSetting(self.instance.name), **self.instance.fixed_settings()}


def _check_grouping(instance: Sink, class_name: str) -> None:
    rule, names_groups = instance.grouped_by, type(instance).commit_group is not Sink.commit_group
    if isinstance(rule, str) and rule and names_groups == (rule != BY_DATASET):
        return
    raise ConfigurationError(
        "the sink's class must have both or none of commit_group and grouped_by",
        id="CUSTOM_CLASS_INVALID",
        class_name=class_name,
        expected="`commit_group`, and `grouped_by` with the rule in words, which the store records; or neither",
        found=f"grouped_by {plain_text(repr(rule), 60)}, {'a' if names_groups else 'no'} commit_group of its own",
    )
