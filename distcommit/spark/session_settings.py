"""Settings of a job's Spark session."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, field_validator

from distcommit.core.support.comparable_addresses import catalog_addresses
from distcommit.core.support.settings_model import SettingError, SettingsModel, checks, rule

_CATALOG = "spark.sql.catalog."
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Environment variable that spark-submit sets for its program."""


class SparkSettings(SettingsModel):
    """The Spark session.

    Attributes:
        master: the master in Spark's form: `local[SLOTS,TRIES]`, `spark://host:7077`, `yarn`,
            `k8s://https://host:port`.
        remote: a Spark Connect server, `sc://host:15002`, in place of `master`. The server then has its own `conf`.
        partitions: the number of tasks that share the buckets; 0: twice the session's slots.
        conf: settings for Spark.
    """

    master: str = "local[2,4]"
    remote: str = ""
    partitions: int = Field(default=0, ge=0)
    conf: dict[str, str] = Field(default_factory=dict)

    @checks("remote")
    @classmethod
    def _is_spark_connect(cls, remote: str) -> str:
        if remote and not re.fullmatch("sc://.+", remote):
            raise SettingError("must have the form sc://HOST:PORT")
        return remote

    @field_validator("conf", mode="before")
    @classmethod
    def _as_spark_text(cls, conf: Any) -> Any:
        if not isinstance(conf, Mapping):
            return conf
        return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in conf.items()}

    @rule
    def _has_no_conf_with_remote(self) -> Iterator[SettingError]:
        if self.remote and self.conf:
            yield SettingError(
                "must not be set with remote", "conf", remedy="configure the server of Spark Connect, or remove remote"
            )

    @property
    def deployment(self) -> tuple[object, ...]:
        """Settings that all jobs of one session have in common."""
        return self.remote, self.master, tuple(sorted(self.conf.items()))

    @property
    def catalogs(self) -> dict[str, frozenset[str]]:
        """Identities of catalogs with an address, by name."""
        uris = {name[len(_CATALOG) :].removesuffix(".uri"): uri for name, uri in self.conf.items() if _is_uri(name)}
        return {
            name: catalog_addresses(uri, self.conf.get(f"{_CATALOG}{name}.warehouse", "")) for name, uri in uris.items()
        }


def is_submitted() -> bool:
    """Return whether spark-submit started this process, so that master and memory are fixed."""
    return _SUBMITTED in os.environ


def is_cluster(master: str) -> bool:
    """Return whether executors run in other processes than the driver."""
    return not master.startswith("local") or master.startswith("local-cluster")


def _is_uri(name: str) -> bool:
    return name.startswith(_CATALOG) and name.endswith(".uri") and name.count(".") == _CATALOG.count(".") + 1
