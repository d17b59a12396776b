"""Generator of conf/docs/reference/metrics.md from the definitions of the metrics.

Run `python -m tests.unit.app.telemetry.metrics_page`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

import distcommit
from distcommit.app.telemetry.metrics import Metrics
from distcommit.app.telemetry.prometheus_endpoint import ServiceMetrics

PAGE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "reference" / "metrics.md"
_HEAD = """\
# Metrics

Every metric for Prometheus. This page is made from the definitions of the metrics: `python -m
tests.unit.app.telemetry.metrics_page` writes it. [Telemetry](../operate/telemetry.md#prometheus) shows how to export
them, with alert rules. This job file writes those that are marked in the column *file* at the end of each run:

```yaml
telemetry: {metrics_file: /var/lib/node_exporter/orders.prom}
```

A service with `--metrics` has all of them. Counters count from the start of the service.

| metric | type | labels | file | meaning |
| --- | --- | --- | --- | --- |
"""


def metrics_page() -> str:
    """Return the reference page of all metrics, as Markdown."""
    registry = CollectorRegistry()
    Metrics(registry, totals=False)
    in_file = {_name(metric) for metric in _metrics(registry)}
    return _HEAD + "".join(_row(metric, _name(metric) in in_file) for metric in _metrics(ServiceMetrics().registry))


def metric_names() -> set[str]:
    """Return the names of all metrics of a service."""
    return {_name(metric) for metric in _metrics(ServiceMetrics().registry)}


def _metrics(registry: CollectorRegistry) -> list[Any]:
    """Return the metrics in the order of their definitions, without those of the process."""
    return [metric for metric in registry._collector_to_names if isinstance(metric, MetricWrapperBase)]


def _name(metric: Any) -> str:
    return f"{metric._name}_total" if metric._type == "counter" else str(metric._name)


def _row(metric: Any, in_file: bool) -> str:
    labels = ", ".join(f"`{label}`" for label in metric._labelnames)
    file = "yes" if in_file else "no"
    return f"| `{_name(metric)}` | {metric._type} | {labels} | {file} | {metric._documentation} |\n"


if __name__ == "__main__":
    PAGE.write_text(metrics_page(), encoding="utf-8")
