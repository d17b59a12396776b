"""Constructs of the user's own: a class that the executors can import."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from distcommit.fs.secret_files import with_secret_files_in


class OwnClass(BaseModel, frozen=True, extra="forbid"):
    """Names a class of one's own, of which an object is made in each process anew.

    Attributes:
        class_name: the class, as `package.module:Class`, which the driver and each executor can import.
        options: its keyword arguments.
    """

    model_config = ConfigDict(ignored_types=(cached_property,))

    class_name: str = Field(alias="class")
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def given(self) -> dict[str, Any]:
        """The options, with what the files hold that they name."""
        return {name: with_secret_files_in(value) for name, value in self.options.items()}

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": {name: v for name, v in state["__dict__"].items() if name != "made"}}
