"""Check that the master of a cluster accepts connections. Must not import Spark."""

from __future__ import annotations

import re
import socket

from distcommit.core.errors import TransientError, error_text

_ADDRESS = re.compile(r"(?:https?://)?(\[[^\]]+\]|[^\s:/,\[\]]+):([0-9]{1,5})/?")
_CONNECT_S = 5.0


def check_master(master: str) -> str:
    """Check that a standalone master or the API server of Kubernetes accepts connections. Spark itself would try for a
    minute or longer. Return a text with the address that accepts, or that nothing was checked, because other masters
    are found by Hadoop's configuration, or need no connection.

    Raises:
        TransientError: if no address accepts within 5 seconds, with the last error.
    """
    kind, _, rest = master.partition("://")
    addresses = _ADDRESS.findall(rest) if kind in ("spark", "k8s") else []
    if not addresses:
        return f"{master}: not checked before a run"
    failed: OSError | None = None
    for host, port in addresses:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S):
                return f"{host}:{port} accepts connections"
        except (OSError, OverflowError) as error:
            failed = error if isinstance(error, OSError) else OSError(str(error))
    raise TransientError(
        "Spark's master does not accept connections",
        id="SPARK_UNAVAILABLE",
        master=master,
        expected=f"a connection within {_CONNECT_S:g} seconds",
        found=error_text(failed) if failed else "",
        todo="start the cluster, or correct spark.master",
    )
