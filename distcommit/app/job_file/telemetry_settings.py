"""The section `observing` of a job file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

_URL = r"^$|^https?://[^/\s]+"


class ObservingSettings(BaseModel):
    """Where metrics, traces, lineage and logs of runs go, beside the store. All are off by default, and a failure is a
    warning.

    Attributes:
        metrics_file: a file for Prometheus's node exporter, such as `/var/lib/node_exporter/orders.prom`; replaced when
            a run ends. Needs `distcommit[prometheus]`.
        traces_url: where a collector accepts OpenTelemetry traces by OTLP over HTTP, such as
            `http://collector:4318/v1/traces`; one for each run, when it ends. Needs `distcommit[opentelemetry]`.
        lineage_url: of a server that accepts OpenLineage events, one at the beginning and one at the end of a run.
            Needs `distcommit[openlineage]`.
        lineage_file: a file that the events are appended to instead, one a line.
        lineage_namespace: the namespace of the job.
        log_file: a file that the driver's log of each run is appended to, one line of JSON for each event and message,
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
            raise ValueError("lineage_url and lineage_file must not both be set")
        return self
