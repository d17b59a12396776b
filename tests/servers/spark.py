"""A Spark standalone cluster of a master and two workers, and a Spark Connect server, from the pyspark package."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pyspark

from distcommit.app.demo.killed_run import processes_of_session
from tests.servers.process import Server, ServerProcess, free_ports

_SPARK_HOME = Path(pyspark.__file__).parent
_CORES = 2
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
_HIDDEN = 'mount -t tmpfs tmpfs "$0" && exec "$@"'


class SparkCluster(Server):
    """Spark master and two workers of two cores each.

    The workers have the hosts 127.0.0.2 and .3, so that Spark treats them as two machines. Executors end with their
    worker. The job sets `spark.driver.host` to 127.0.0.1.
    """

    def __init__(self) -> None:
        super().__init__()
        self._workers: dict[int, ServerProcess] = {}

    @property
    def master(self) -> str:
        """Return the URL of the master."""
        return f"spark://127.0.0.1:{self._port}"

    def _start(self, stack: contextlib.ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-")))
        self._port, self._web_port = free_ports(2)
        arguments = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._web_port)]
        master = stack.enter_context(self._launch("Spark master", "master.Master", *arguments))
        stack.callback(self._kill_workers)
        master.wait_until(lambda: not self._workers_alive())
        for worker in (1, 2):
            self._launch_worker(worker)
        for worker in (1, 2):
            self._workers[worker].wait_until(lambda: len(self._workers_alive()) == 2)

    def kill_worker(self, worker: int) -> None:
        """Kill a worker (1 or 2) with its executors and their Python workers by SIGKILL."""
        self._workers.pop(worker).kill()

    def start_worker(
        self,
        worker: int,
        *,
        read_only: Path | None = None,
        hidden: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start a killed worker again, and wait until the master has registered it.

        Args:
            worker: the worker, 1 or 2.
            read_only: folder that this worker and its executors cannot write, as after a disk failure. Needs Linux
                and the permission to create a mount namespace.
            hidden: folder that is empty for this worker and its executors, as without the mount of it. Needs the same.
            env: variables of this worker and its executors.
        """
        before = self._workers_alive()  # the master may still list the killed one
        prefix = []
        if folder := read_only or hidden:
            script = _READ_ONLY if read_only else _HIDDEN
            prefix = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, str(folder)]
        self._launch_worker(worker, prefix, env or {})
        self._workers[worker].wait_until(lambda: bool(self._workers_alive() - before))

    def processes(self) -> list[int]:
        """Return the live processes of both workers, including executors and their Python workers."""
        return [pid for worker in self._workers.values() for pid in processes_of_session(worker.session_id)]

    def _launch_worker(self, worker: int, prefix: Sequence[str] = (), env: Mapping[str, str] = _NO_VARIABLES) -> None:
        arguments = ["--host", f"127.0.0.{worker + 1}", "--cores", str(_CORES), "--memory", "1g", "--webui-port", "0"]
        self._workers[worker] = self._launch(
            f"Spark worker {worker}",
            "worker.Worker",
            *arguments,
            "--work-dir",
            str(self._folder / f"work-{worker}"),
            self.master,
            prefix=prefix,
            env=env,
        )

    def _launch(
        self,
        name: str,
        main_class: str,
        *arguments: str,
        prefix: Sequence[str] = (),
        env: Mapping[str, str] = _NO_VARIABLES,
    ) -> ServerProcess:
        return ServerProcess(
            name,
            [*prefix, str(_SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main_class}", *arguments],
            self._folder / f"{name}.log",
            {
                "SPARK_HOME": str(_SPARK_HOME),
                "SPARK_DAEMON_MEMORY": "512m",
                "SPARK_LOCAL_DIRS": str(self._folder),
                **env,
            },
        )

    def _workers_alive(self) -> set[str]:
        """Return the ids of the workers that the master considers alive; a restarted one has a new id."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/json/", timeout=5) as answer:
            return {worker["id"] for worker in json.load(answer)["workers"] if worker["state"] == "ALIVE"}

    def _kill_workers(self) -> None:
        while self._workers:
            self._workers.popitem()[1].kill()


class SparkConnectServer(Server):
    """Spark Connect server with two slots, on this Python."""

    @property
    def remote(self) -> str:
        """Return the URL for clients."""
        return f"sc://127.0.0.1:{self._port}"

    def _start(self, stack: contextlib.ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-connect-")))
        (self._port,) = free_ports(1)
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.ui.enabled": "false",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        command = [str(_SPARK_HOME / "bin" / "spark-class"), "org.apache.spark.deploy.SparkSubmit"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2,4]"]
        command += [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
        server = stack.enter_context(
            ServerProcess(
                "Spark Connect server",
                [*command, "spark-internal"],
                folder / "log",
                {"SPARK_HOME": str(_SPARK_HOME), "PYSPARK_PYTHON": sys.executable},
            )
        )
        server.wait_until(self._listens)

    def _listens(self) -> bool:
        with socket.create_connection(("127.0.0.1", self._port), timeout=5):
            return True
