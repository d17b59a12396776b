"""The section `observing` of a job file: who is told of its runs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ObservingSettings(BaseModel):
    """Who is told of the job's runs, beside the store. Nothing of it is on by itself, and what fails is a warning.

    Attributes:
        metrics_file: a file that Prometheus's node exporter collects, such as
            `/var/lib/node_exporter/orders.prom`; written anew as each run ends. Needs `distcommit[prometheus]`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metrics_file: str = Field(default="", pattern=r"^$|\.prom$")
