"""The section `telemetry` of a job file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import Field

from distcommit.core.support.settings_model import SettingError, SettingsModel, checks, rule


class TelemetrySettings(SettingsModel):
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
            with the ids of job and run. The error that ends a run has its traceback there.
    """

    metrics_file: str = ""
    traces_url: str = ""
    lineage_url: str = ""
    lineage_file: str = ""
    lineage_namespace: str = Field(default="distcommit", min_length=1)
    log_file: str = ""

    @checks("metrics_file")
    @classmethod
    def _ends_in_prom(cls, path: str) -> str:
        if path and not path.endswith(".prom"):
            raise SettingError("must end in .prom, because the node exporter reads no other files")
        return path

    @checks("traces_url", "lineage_url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if url and not re.match(r"https?://[^/\s]+", url):
            raise SettingError("must begin with http:// or https://, and name a host")
        return url

    @rule
    def _lineage_has_one_target(self) -> Iterator[SettingError]:
        if self.lineage_url and self.lineage_file:
            yield SettingError("must not be set beside lineage_url", "lineage_file", remedy="remove one of them")
