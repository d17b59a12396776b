"""Apache Kafka in KRaft mode: one broker, or two where leaders have to move."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.servers.java import java_command, keytool
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.process import Server, ServerProcess, ServerUnavailableError, free_ports

_STORE_PASSWORD = "changeit"


class KafkaServer(Server):
    """Kafka brokers 1 to `brokers`, with broker 1 as controller.

    If there are several, only the others may be killed and started again. Topics are created explicitly
    (`auto.create.topics.enable` is off). Internal topics have a copy on each broker. Compacted topics are compacted
    without much delay. Each broker also listens with SASL, and with SASL over TLS. Access lists bind the clients of
    these listeners; all other operations are allowed.

    Args:
        brokers: 1 or 2.
        heap_mb: a broker's heap; the default is enough for hundreds of partitions.
        for_long: whether Java compiles its code fully, as in production, for measurements of minutes.
        lossy: whether clients reach the last broker through `proxy`, which can lose answers.
    """

    user, password = "reader", "correct-horse-battery"
    """User of `sasl_bootstrap_servers` and `tls_bootstrap_servers`."""

    def __init__(self, brokers: int = 1, heap_mb: int = 512, *, for_long: bool = False, lossy: bool = False) -> None:
        super().__init__()
        self.brokers, self._heap_mb, self._for_long, self._is_lossy = brokers, heap_mb, for_long, lossy
        self.proxy: LossyProxy | None = None
        self._processes: dict[int, ServerProcess] = {}

    @property
    def bootstrap_servers(self) -> str:
        """Return the clients' setting: host:port, separated by commas."""
        return _with_ports(self._advertised)

    @property
    def sasl_bootstrap_servers(self) -> str:
        """Return the brokers for clients with `security.protocol: sasl_plaintext` and `sasl.mechanism: PLAIN`."""
        return _with_ports(self._sasl_ports)

    @property
    def tls_bootstrap_servers(self) -> str:
        """Return the brokers for clients with `security.protocol: sasl_ssl`, `sasl.mechanism: SCRAM-SHA-512` and
        `ssl.ca.location: ca_file`."""
        return _with_ports(self._tls_ports)

    @property
    def ca_file(self) -> Path:
        """Return the certificate that clients must trust, in PEM: the brokers' one is self-signed."""
        return self._folder / "ca.pem"

    @property
    def data_folder(self) -> Path:
        """Return the folder with a folder for each partition of the first broker."""
        return self._folder / "data-1"

    def _start(self, stack: contextlib.ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-")))
        controller, *ports = free_ports(1 + 3 * self.brokers)
        self._ports, self._sasl_ports, self._tls_ports = (ports[start::3] for start in range(3))
        self._advertised = list(self._ports)
        if self._is_lossy:
            self.proxy = stack.enter_context(LossyProxy(self._ports[-1]))
            self._advertised[-1] = self.proxy.port
        self._make_certificate()
        cluster_id = "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:].rstrip("=")  # a dash would be an option
        stack.callback(self._kill_all)
        for broker in range(1, self.brokers + 1):
            self._settings(broker).write_text(self._properties(broker, controller), encoding="utf-8")
            self._format(broker, cluster_id)
        for broker in range(1, self.brokers + 1):
            self._launch(broker)
        for broker in range(1, self.brokers + 1):
            self._wait_for(broker)

    def kill_broker(self, broker: int) -> None:
        """Kill a broker by SIGKILL, other than the first of several; its data stays."""
        if broker == 1 < self.brokers:
            raise ValueError("broker 1 is the controller: without it no leader moves")
        self._processes.pop(broker).kill()

    def start_broker(self, broker: int) -> None:
        """Start a killed broker again, on its port and its data."""
        self._launch(broker)
        self._wait_for(broker)

    @property
    def _keystore(self) -> Path:
        return self._folder / "keys.p12"

    def _make_certificate(self) -> None:
        store = ["-keystore", str(self._keystore), "-storepass", _STORE_PASSWORD, "-alias", "broker"]
        names = ["-dname", "CN=broker", "-ext", "san=ip:127.0.0.1", "-ext", "bc:c"]
        keytool("-genkeypair", *store, *names, "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "30")
        keytool("-exportcert", *store, "-rfc", "-file", str(self.ca_file))

    def _settings(self, broker: int) -> Path:
        return self._folder / f"broker-{broker}.properties"

    def _properties(self, broker: int, controller: int) -> str:
        by_protocol = {"PLAINTEXT": self._ports, "SASL_PLAINTEXT": self._sasl_ports, "SASL_SSL": self._tls_ports}
        listener = ",".join(f"{name}://127.0.0.1:{ports[broker - 1]}" for name, ports in by_protocol.items())
        advertised = by_protocol | {"PLAINTEXT": self._advertised}
        protocols = ",".join(f"{name}:{name}" for name in by_protocol)
        login = "org.apache.kafka.common.security.{}LoginModule required"
        is_controller = broker == 1
        properties = {
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": broker,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener},CONTROLLER://127.0.0.1:{controller}" if is_controller else listener,
            "advertised.listeners": ",".join(
                f"{name}://127.0.0.1:{ports[broker - 1]}" for name, ports in advertised.items()
            ),
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": login.format("plain.Plain")
            + f' user_{self.user}="{self.password}";',
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": login.format("scram.Scram") + ";",
            "ssl.keystore.location": self._keystore,
            "ssl.keystore.password": _STORE_PASSWORD,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
            "log.dirs": self._folder / f"data-{broker}",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": 0,
            "log.index.size.max.bytes": 1 << 20,  # each segment maps two of them
            "log.retention.ms": -1,  # by the records' own times, which are past in tests
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": self.brokers,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": self.brokers,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": self.brokers,
            "share.coordinator.state.topic.min.isr": 1,
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "log.cleaner.backoff.ms": 200,
        }
        return "".join(f"{key}={value}\n" for key, value in properties.items())

    def _format(self, broker: int, cluster_id: str) -> None:
        user = f"SCRAM-SHA-512=[name={self.user},password={self.password}]"
        arguments = ["-t", cluster_id, "-c", str(self._settings(broker)), "--add-scram", user]
        command = java_command("kafka", "kafka.tools.StorageTool", "format", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerUnavailableError(
                f"Kafka's storage can't be formatted: {(done.stdout + done.stderr).strip()[-1000:]}"
            )

    def _launch(self, broker: int) -> None:
        heap_mb, for_long = self._heap_mb, self._for_long
        command = java_command("kafka", "kafka.Kafka", str(self._settings(broker)), heap_mb=heap_mb, for_long=for_long)
        self._processes[broker] = ServerProcess(
            f"Kafka broker {broker}", command, self._folder / f"broker-{broker}.log"
        )

    def _wait_for(self, broker: int) -> None:
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        self._processes[broker].wait_until(lambda: broker in client.list_topics(timeout=2).brokers)

    def _kill_all(self) -> None:
        _close_clients()
        while self._processes:
            self._processes.popitem()[1].kill()


def _close_clients() -> None:
    """Close the clients that are left in this process, which would log for ever that the brokers are gone.

    An error may refer to the client that raised it. If the client raises an error while another one is handled, its C
    code never frees the other one, nor the frames of its traceback with their clients.
    """
    gc.collect()
    for client in [each for each in gc.get_objects() if type(each) is AdminClient]:
        client.__exit__(None, None, None)


def _with_ports(ports: list[int]) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports)
