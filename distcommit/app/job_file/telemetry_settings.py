"""The section `observing` of a job file: who is told of its runs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

_URL = r"^$|^https?://[^/\s]+"


class ObservingSettings(BaseModel):
    """Who is told of the job's runs, beside the store. Nothing of it is on by itself, and what fails is a warning.

    Attributes:
        metrics_file: a file that Prometheus's node exporter collects, such as
            `/var/lib/node_exporter/orders.prom`; written anew as each run ends. Needs `distcommit[prometheus]`.
        traces_url: where a collector takes OpenTelemetry's traces by OTLP over HTTP, such as
            `http://collector:4318/v1/traces`; one for each run, as it ends. Needs `distcommit[opentelemetry]`.
        lineage_url: of a server that takes OpenLineage's events, one as a run begins and one as it ends. Needs
            `distcommit[openlineage]`.
        lineage_file: a file that they are appended to instead, one a line.
        lineage_namespace: which namespace the job is in there.
        log_file: a file that the driver's log of each run is appended to, a line of JSON for each event and message,
            with the ids of job and run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metrics_file: str = Field(default="", pattern=r"^$|\.prom$")
    traces_url: str = Field(default="", pattern=_URL)
    lineage_url: str = Field(default="", pattern=_URL)
    lineage_file: str = ""
    lineage_namespace: str = Field(default="distcommit", min_length=1)
    log_file: str = ""

    @model_validator(mode="after")
    def _goes_to_one_place(self) -> ObservingSettings:
        if self.lineage_url and self.lineage_file:
            raise ValueError("lineage goes to a server or into a file: leave out lineage_url, or lineage_file")
        return self
