"""The servers that other tests use: they answer, and they are gone afterwards, also after a crash."""

from __future__ import annotations

import getpass
import json
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import boto3
import pytest
from botocore.exceptions import ClientError
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from tests.servers.hdfs import HdfsServer
from tests.servers.java import jars
from tests.servers.kafka import KafkaServer
from tests.servers.mariadb import MariadbServer
from tests.servers.process import ServerProcess, ServerUnavailableError
from tests.servers.s3 import S3Server
from tests.servers.spark import SparkCluster


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the process ended before its file was opened or read
        return False


def _wait_for(path: Path) -> str:
    deadline_s = time.monotonic() + 20
    while not (path.exists() and path.read_text(encoding="ascii").endswith("\n")):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return path.read_text(encoding="ascii")


def test_a_server_ends_with_the_process_that_started_it_even_by_sigkill(tmp_path: Path) -> None:
    program = f"""
import time, pathlib
from tests.servers.process import ServerProcess
place = pathlib.Path({str(tmp_path)!r})
ServerProcess("sleeper", ["sh", "-c", f"echo $$ >{{place}}/pid; sleep 600 & sleep 600"], place / "log")
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[3]) as starter:
        sleeper = int(_wait_for(tmp_path / "pid"))
        assert _is_alive(sleeper)
        starter.send_signal(signal.SIGKILL)
    deadline_s = time.monotonic() + 20
    while _is_alive(sleeper):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_server_that_does_not_start_reports_why(tmp_path: Path) -> None:
    with (
        ServerProcess("broken", ["sh", "-c", "echo no disk; exit 1"], tmp_path / "log") as process,
        pytest.raises(ServerUnavailableError, match="broken ended while it started: no disk"),
    ):
        process.wait_until(lambda: False)


def test_kafka_keeps_what_it_acknowledged(kafka_server: KafkaServer) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    client = AdminClient({"bootstrap.servers": kafka_server.bootstrap_servers})
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for value, keep in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        if keep:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    consumer = Consumer({"bootstrap.servers": kafka_server.bootstrap_servers, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.value() == b"committed"


@pytest.mark.long
@pytest.mark.slow
def test_a_leader_moves_to_the_other_broker_and_back(kafka_pair: KafkaServer) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    client = AdminClient({"bootstrap.servers": kafka_pair.bootstrap_servers, "log_level": 0})
    client.create_topics([NewTopic(topic, 2, 2)])[topic].result()

    def partitions() -> list[PartitionMetadata]:
        return list(client.list_topics(topic, timeout=10).topics[topic].partitions.values())

    def wait_until(reached: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 60
        while not reached():
            assert time.monotonic() < deadline_s
            time.sleep(0.1)

    wait_until(lambda: sorted(partition.leader for partition in partitions()) == [1, 2])
    kafka_pair.kill_broker(2)
    wait_until(lambda: [partition.leader for partition in partitions()] == [1, 1])
    kafka_pair.start_broker(2)
    wait_until(lambda: all(len(partition.isrs) == 2 for partition in partitions()))
    client.elect_leaders(ElectionType.PREFERRED, None).result()
    wait_until(lambda: sorted(partition.leader for partition in partitions()) == [1, 2])


def test_hdfs_keeps_a_file_on_two_data_nodes(hdfs_server: HdfsServer) -> None:
    path = f"http://{hdfs_server.web_authority}/webhdfs/v1/t-{uuid.uuid4().hex}"
    query = f"user.name={getpass.getuser()}&op="
    with pytest.raises(HTTPError) as redirected:  # urllib follows no redirect of a PUT
        urlopen(Request(f"{path}?{query}CREATE", method="PUT"), timeout=20)
    redirected.value.close()
    place = redirected.value.headers["Location"]
    with urlopen(Request(place, data=b"kept", method="PUT"), timeout=20) as answer:
        assert answer.status == 201
    with urlopen(f"{path}?{query}OPEN", timeout=20) as answer:
        assert answer.read() == b"kept"
    with urlopen(f"{path}?{query}GETFILESTATUS", timeout=20) as answer:
        assert json.load(answer)["FileStatus"]["replication"] == 2


@pytest.mark.long
@pytest.mark.slow
def test_spark_runs_tasks_on_both_workers(spark_cluster: SparkCluster) -> None:
    command = [sys.executable, "-m", "tests.integration.parts.where_tasks_run", spark_cluster.master]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    assert sorted(re.findall("/work-([12])/", done.stdout)) == ["1", "2"]


def test_s3_puts_a_name_once(s3_server: S3Server) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    bucket = f"b-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    client.put_object(Bucket=bucket, Key="a", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=bucket, Key="a", Body=b"second", IfNoneMatch="*")
    assert client.get_object(Bucket=bucket, Key="a")["Body"].read() == b"first"


@pytest.mark.slow
def test_command_prints_the_server_s_address_and_ends_it(tmp_path: Path) -> None:
    jars("kafka")
    command = [sys.executable, "-m", "tests.servers", "kafka"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        key, _, brokers = line.strip().partition("=")
        assert key == "BROKERS"
        assert "set source.brokers to the address" in process.stderr.readline()
        assert AdminClient({"bootstrap.servers": brokers}).list_topics(timeout=10).brokers
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    with pytest.raises(Exception, match="_TRANSPORT"):
        AdminClient({"bootstrap.servers": brokers, "log_level": 0}).list_topics(timeout=1)


def test_mariadb_keeps_what_was_committed_over_a_kill(mariadb_server: MariadbServer) -> None:
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE kept (id int PRIMARY KEY)")
        cursor.execute("INSERT INTO kept VALUES (1)")
    mariadb_server.restart()
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM kept")
        assert cursor.fetchall() == ((1,),)
        cursor.execute("DROP TABLE kept")


def test_servers_need_only_their_own_packages() -> None:
    """Without the packages of the extra `dev`, Kafka can be imported; a refusal has the command that installs them."""
    script = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('pymysql', 'psycopg', 'pytest', 'boto3', 'moto')))\n"
        "from tests.servers.__main__ import main\n"
        "import tests.servers.kafka\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    checkout, pip = Path(__file__).parents[3], f"{sys.executable} -m pip install"
    for server, refusal in (
        ("postgresql", f"package psycopg is missing; run: {pip} -e '{checkout}[sql-source]'"),
        ("mariadb", f"package pymysql is missing; run: {pip} -e '{checkout}[sql-source]'"),
        ("s3", f"run: {pip} -e '{checkout}[dev]'"),
        ("smb", f"package pytest is missing; run: {pip} -e '{checkout}[dev]'"),
    ):
        command = [sys.executable, "-c", script, server]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.endswith(f"{refusal}\n")
