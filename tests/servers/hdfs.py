"""Apache Hadoop HDFS: a NameNode, two DataNodes and WebHDFS; or a name service of two NameNodes, one of them active."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.servers.java import java_command
from tests.servers.process import Server, ServerProcess, ServerUnavailableError, free_ports

_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
METRICS_PERIOD_S = 1
_NAME_SERVICE = "tested"
_INFO = "service=NameNode,name=NameNodeInfo"


class HdfsServer(Server):
    """HDFS of one or two NameNodes, of which the first is active, and two DataNodes. Each file has two replicas.

    Args:
        name_nodes: 1, or 2 for a name service with manual failover.
    """

    def __init__(self, name_nodes: int = 1) -> None:
        super().__init__()
        self._name_nodes = range(1, name_nodes + 1)
        self._processes: dict[str, ServerProcess] = {}

    @property
    def authority(self) -> str:
        """Return host and port of the NameNode, or the name service."""
        return _NAME_SERVICE if len(self._name_nodes) > 1 else f"127.0.0.1:{self._rpc[0]}"

    def authority_of(self, node: int) -> str:
        """Return host and port of one NameNode."""
        return f"127.0.0.1:{self._rpc[node - 1]}"

    @property
    def web_authority(self) -> str:
        """Return host and port of the first NameNode's web address, which serves WebHDFS."""
        return f"127.0.0.1:{self._http[0]}"

    @property
    def conf_dir(self) -> Path:
        """Return a HADOOP_CONF_DIR for clients."""
        return self._folder / "conf"

    def _start(self, stack: contextlib.ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hdfs-")))
        ports = free_ports(2 * len(self._name_nodes))
        self._rpc, self._http = ports[::2], ports[1::2]
        stack.callback(self._kill_all)
        self.conf_dir.mkdir()
        _write_settings(self.conf_dir / "core-site.xml", {"fs.defaultFS": f"hdfs://{self.authority}", **_CORE})
        _write_settings(self.conf_dir / "hdfs-site.xml", {**_HDFS, **self._addresses()})
        (self.conf_dir / "hadoop-metrics2.properties").write_text(f"*.period={METRICS_PERIOD_S}\n")
        self._call(_NAME_NODE, *self._as_node(1), "-format", "-force", "-nonInteractive")
        self._launch_name_node(1)
        for node in (1, 2):
            self._launch_data_node(node)
        for node in self._name_nodes[1:]:
            self._wait_for(f"NameNode {node - 1}", lambda: bool(self._state(1)))
            self._call(_NAME_NODE, *self._as_node(node), "-bootstrapStandby", "-force", "-nonInteractive")
            self._launch_name_node(node)
        if len(self._name_nodes) > 1:
            self._wait_for("NameNode 2", lambda: bool(self._state(2)))
            self.make_active(1)
        self._wait_until_usable(1)

    def blocks_synced(self) -> int:
        """Return how often the DataNodes have synced a block since their start, summed over both.

        The call takes seconds, as Hadoop caches its figures for one.
        """
        time.sleep(2 * METRICS_PERIOD_S)
        total = 0
        for bean in self._beans(self._http[0], _INFO):
            for port in _web_ports(bean):
                for activity in self._beans(port, "service=DataNode,name=DataNodeActivity-*"):
                    total += activity["FsyncCount"]
        return total

    def kill(self) -> None:
        """Kill all nodes at nearly the same time by SIGKILL; their folders stay."""
        self._kill_all()

    def start_again(self) -> None:
        """Start the nodes of a one-NameNode name service again, on their ports and folders."""
        self._launch_name_node(1)
        for node in (1, 2):
            self._launch_data_node(node)
        self._wait_until_usable(1)

    def kill_name_node(self, node: int) -> None:
        """Kill one NameNode by SIGKILL."""
        self._processes.pop(f"NameNode {node}").kill()

    def restart_name_node(self) -> None:
        """Kill the NameNode of a one-NameNode name service by SIGKILL and restart it on its port and folder."""
        self.kill_name_node(1)
        self._launch_name_node(1)
        self._wait_until_usable(1)

    def kill_data_node(self, node: int) -> None:
        """Kill one DataNode by SIGKILL. The NameNode considers it alive for minutes."""
        self._processes.pop(f"DataNode {node}").kill()

    def start_data_node(self, node: int) -> None:
        """Start a killed DataNode again, and wait until it has registered with the NameNode."""
        before = self._data_node_ports()
        self._launch_data_node(node)
        self._wait_for(f"DataNode {node}", lambda: self._data_node_ports() != before)

    def admin(self, *arguments: str) -> None:
        """Run `hdfs dfsadmin` with these arguments."""
        self._call("org.apache.hadoop.hdfs.tools.DFSAdmin", *arguments)

    def make_active(self, node: int) -> None:
        """Make a NameNode of a name service the active one."""
        self._call("org.apache.hadoop.hdfs.tools.DFSHAAdmin", "-transitionToActive", "--forceactive", f"nn{node}")
        self._wait_until_usable(node)

    def _addresses(self) -> dict[str, str]:
        if len(self._name_nodes) == 1:
            return {
                "dfs.namenode.rpc-address": f"127.0.0.1:{self._rpc[0]}",
                "dfs.namenode.http-address": f"127.0.0.1:{self._http[0]}",
            }
        addresses = {
            "dfs.nameservices": _NAME_SERVICE,
            f"dfs.ha.namenodes.{_NAME_SERVICE}": ",".join(f"nn{node}" for node in self._name_nodes),
            f"dfs.client.failover.proxy.provider.{_NAME_SERVICE}": (
                "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
            ),
            "dfs.ha.fencing.methods": "shell(/bin/true)",
            "dfs.namenode.shared.edits.dir": f"file://{self._folder}/edits",
        }
        for node, rpc, http in zip(self._name_nodes, self._rpc, self._http, strict=True):
            addresses[f"dfs.namenode.rpc-address.{_NAME_SERVICE}.nn{node}"] = f"127.0.0.1:{rpc}"
            addresses[f"dfs.namenode.http-address.{_NAME_SERVICE}.nn{node}"] = f"127.0.0.1:{http}"
        return addresses

    def _as_node(self, node: int) -> list[str]:
        own = ["-D", f"dfs.namenode.name.dir=file://{self._folder}/name-{node}"]
        return own if len(self._name_nodes) == 1 else [*own, "-D", f"dfs.ha.namenode.id=nn{node}"]

    def _launch_name_node(self, node: int) -> None:
        self._launch(f"NameNode {node}", _NAME_NODE, *self._as_node(node))

    def _launch_data_node(self, node: int) -> None:
        self._launch(f"DataNode {node}", _DATA_NODE, "-D", f"dfs.datanode.data.dir=file://{self._folder}/data-{node}")

    def _launch(self, name: str, main_class: str, *arguments: str) -> None:
        command = java_command("hdfs", main_class, *arguments, conf_dir=self.conf_dir)
        self._processes[name] = ServerProcess(name, command, self._folder / f"{name}.log")

    def _call(self, main_class: str, *arguments: str) -> None:
        command = java_command("hdfs", main_class, *arguments, conf_dir=self.conf_dir)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            output = (done.stdout + done.stderr).strip()
            raise ServerUnavailableError(f"HDFS can't do {' '.join([main_class, *arguments])}: {output[:3000]}")

    def _wait_until_usable(self, node: int) -> None:
        def is_usable() -> bool:
            state = self._state(node)
            return bool(state["FSState"] == "Operational" and state["NumLiveDataNodes"] == 2)

        self._wait_for(f"NameNode {node}", is_usable)

    def _wait_for(self, name: str, ready: Callable[[], bool]) -> None:
        self._processes[name].wait_until(ready)

    def _data_node_ports(self) -> set[int]:
        """Return the web ports of the DataNodes that the NameNode considers alive; each start has a new one."""
        return {port for bean in self._beans(self._http[0], _INFO) for port in _web_ports(bean)}

    def _state(self, node: int) -> dict[str, Any]:
        return self._beans(self._http[node - 1], "service=NameNode,name=FSNamesystemState")[0]

    def _beans(self, port: int, name: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/jmx?qry=Hadoop:{name}", timeout=5) as answer:
            return list(json.load(answer)["beans"])

    def _kill_all(self) -> None:
        while self._processes:
            self._processes.popitem()[1].kill()


_CORE = {"hadoop.security.authentication": "simple"}
_HDFS = {
    "dfs.replication": "2",
    "dfs.blocksize": str(1 << 20),
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.namenode.fs-limits.min-block-size": "4096",
    "dfs.datanode.hostname": "127.0.0.1",
    "dfs.datanode.address": "127.0.0.1:0",
    "dfs.datanode.http.address": "127.0.0.1:0",
    "dfs.datanode.ipc.address": "127.0.0.1:0",
    "dfs.heartbeat.interval": "1",
}


def _web_ports(name_node: Mapping[str, Any]) -> set[int]:
    return {int(node["infoAddr"].rpartition(":")[2]) for node in json.loads(name_node["LiveNodes"]).values()}


def _write_settings(path: Path, settings: Mapping[str, str]) -> None:
    properties = "".join(
        f"  <property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
        for key, value in settings.items()
    )
    path.write_text(f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n', encoding="utf-8")
