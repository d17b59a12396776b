"""The requests to a NameNode, by its own metrics."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter

from tests.servers.hdfs import METRICS_PERIOD_S, HdfsServer

_OPERATIONS = {
    "AddBlockOps": "add_block",
    "CreateFileOps": "create",
    "DeleteFileOps": "delete",
    "FileInfoOps": "status",
    "FilesRenamed": "rename",
    "GetBlockLocations": "read",
    "GetListingOps": "list",
}
"""Metrics of its activity, for both protocols."""
_FROM_DATA_NODES = {"SendHeartbeat", "BlockReceivedAndDeleted", "BlockReport", "RegisterDatanode", "VersionRequest"}


def operations_of(server: HdfsServer) -> Counter[str]:
    """Return operations by kind since the NameNode started.

    `requests` counts all of RPC and HTTP, and `edits` the writes to its edit log. The call takes seconds: Hadoop caches
    its figures for one.
    """
    time.sleep(2 * METRICS_PERIOD_S)
    operations: Counter[str] = Counter()
    for key, value in _bean(server, "NameNodeActivity").items():
        if key in _OPERATIONS:
            operations[_OPERATIONS[key]] += value
        elif key == "TransactionsNumOps":
            operations["edits"] += value
    for key, value in _bean(server, "RpcDetailedActivityForPort*").items():
        kind = key.removesuffix("NumOps")
        if kind != key and not kind.startswith("Overall") and kind not in _FROM_DATA_NODES:
            operations["requests"] += value
            if kind == "Mkdirs":
                operations["make_folder"] += value
    return operations


def _bean(server: HdfsServer, name: str) -> dict[str, int]:
    url = f"http://{server.web_authority}/jmx?qry=Hadoop:service=NameNode,name={name}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        [bean] = json.load(answer)["beans"]
    return {key: value for key, value in bean.items() if isinstance(value, int)}
