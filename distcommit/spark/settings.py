"""Settings of a job's Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from distcommit.core.interfaces.targets import catalog_addresses

_CATALOG = "spark.sql.catalog."


class SparkSettings(BaseModel):
    """The Spark session.

    Attributes:
        master: the master in Spark's form: `local[SLOTS,TRIES]`, `spark://host:7077`, `yarn`,
            `k8s://https://host:port`.
        remote: a Spark Connect server, `sc://host:15002`, in place of `master`. The server then has its own `conf`.
        partitions: the number of tasks that share the buckets; 0: twice the session's slots.
        conf: settings for Spark.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    master: str = "local[2,4]"
    remote: str = Field(default="", pattern="^(sc://.+)?$")
    partitions: int = Field(default=0, ge=0)
    conf: dict[str, str] = Field(default_factory=dict)

    @field_validator("conf", mode="before")
    @classmethod
    def _as_spark_text(cls, conf: Any) -> Any:
        if not isinstance(conf, Mapping):
            return conf
        return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in conf.items()}

    @model_validator(mode="after")
    def _reject_conf_with_remote(self) -> SparkSettings:
        if self.remote and self.conf:
            raise ValueError(
                "spark.conf cannot be set over Spark Connect; configure the server, or remove spark.remote"
            )
        return self

    @property
    def catalogs(self) -> dict[str, frozenset[str]]:
        """Return the identities of the catalogs whose address is in `conf`, by name."""
        uris = {name[len(_CATALOG) :].removesuffix(".uri"): uri for name, uri in self.conf.items() if _is_uri(name)}
        return {
            name: catalog_addresses(uri, self.conf.get(f"{_CATALOG}{name}.warehouse", "")) for name, uri in uris.items()
        }


def _is_uri(name: str) -> bool:
    return name.startswith(_CATALOG) and name.endswith(".uri") and name.count(".") == _CATALOG.count(".") + 1
