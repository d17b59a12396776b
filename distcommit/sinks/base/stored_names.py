"""The name that a sink's commits are stored with, which leads to one target as long as any of them is pending."""

from __future__ import annotations

from pydantic import BaseModel, Field


class StoredName(BaseModel):
    """A sink that a job may have several of, each in a branch of a fork.

    Attributes:
        stored_as: added to the name that commits are stored with, which no two branches may have in common. It stays as
            it is as long as anything is pending.
    """

    stored_as: str = Field(default="", pattern=r"^[A-Za-z0-9_-]{0,64}$")

    def name_of(self, kind: str) -> str:
        """The stored name of a sink that has this one by itself."""
        return f"{kind}@{self.stored_as}" if self.stored_as else kind
