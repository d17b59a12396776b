"""The check of a job reports all problems at once, each with its line and a remedy, and writes nothing."""

from __future__ import annotations

import http.server
import json
import os
import pickle
import socket
import socketserver
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from distcommit.app.checks.check_result import CheckFailedError, CheckResult
from distcommit.app.checks.dry_run import plan_dry_run
from distcommit.app.checks.folder_check import check_folder
from distcommit.app.checks.job_check import check_before_run, check_file
from distcommit.app.jobs.job import Job
from distcommit.cli.main import app
from distcommit.core.error_catalogue import ERRORS
from distcommit.core.errors import ConfigurationError, SinkUnavailableError, SourceUnavailableError
from distcommit.core.support.install_command import install_command
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sources.watermark_column import PARTITION
from distcommit.stores.folders.run_markers import Marker, put_run_marker
from distcommit.stores.logs.fencing import begin_run
from distcommit.stores.logs.log_anchors import record_cut_began

FILES = """\
job: orders
source:
  type: files
  paths: ["{folder}/in/{{dataset}}/*.csv"]
  format: csv
  min_file_age_s: 0
sink:
  type: sqlite
  path: {folder}/orders.db
paths:
  store: state/store
  staging: state/staging
  output: state/output
"""


KAFKA = """\
job: shop
source:
  type: kafka
  brokers: 127.0.0.1:{port}
  topics: [orders]
  request_timeout_s: 0.2
paths: {{store: s, staging: t, output: o}}
"""


def written(folder: Path, text: str = FILES, **values: object) -> Path:
    path = folder / "job.yaml"
    path.write_text(text.format(folder=folder, **values))
    return path


def with_input(folder: Path) -> Path:
    (folder / "in" / "orders").mkdir(parents=True)
    (folder / "in" / "orders" / "1.csv").write_text("id,price\n1,2.50\n2,3.00\n")
    return written(folder)


def found(result: CheckResult) -> list[tuple[str, int]]:
    return [(problem.setting, problem.line) for problem in result.problems]


def names_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_job_without_problems_passes_and_nothing_is_written(tmp_path: Path) -> None:
    path = with_input(tmp_path)
    before = names_below(tmp_path)
    result = check_file(path, plan=True)
    assert (result.passed, result.problems, result.exit_code) == (True, [], 0)
    assert names_below(tmp_path) == before


def test_all_problems_are_reported_at_once_with_line_and_remedy(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace("state/store", "/proc/store").replace("orders.db", "missing/orders.db"))
    text = path.read_text().replace("state/staging", "/proc/staging").replace("state/output", "/proc/output")
    path.write_text(text)
    result = check_file(path)
    assert {setting for setting, _ in found(result)} >= {"source.paths", "sink.path"}
    assert dict(found(result))["source.paths"] == 4
    assert dict(found(result))["sink.path"] == 9
    assert all(problem.file == str(path) and problem.text for problem in result.problems)
    assert all(problem.remedy for problem in result.problems)
    assert result.exit_code == 2


def as_nobody(act: Callable[[], object]) -> str:
    """Return the error of a call in a process whose user is `nobody`, if this user is the superuser."""
    begun, written_end = os.pipe()
    if not (child := os.fork()):
        try:
            if not os.geteuid():
                os.setuid(65534)
            act()
        except Exception as error:  # noqa: BLE001 - it is the result
            os.write(written_end, str(error).encode())
        finally:
            os._exit(0)
    os.close(written_end)
    with os.fdopen(begun) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return text


def test_folder_that_this_user_may_not_write_is_named_with_its_parent() -> None:
    with TemporaryDirectory(dir="/tmp") as parent:
        Path(parent).chmod(0o555)
        text = as_nobody(lambda: check_folder(LocalFileSystem(), f"{parent}/store", is_used=False))
    assert "SETTINGS_INVALID: a folder of the job can't be written" in text
    assert f"found no permission to write {parent}" in text
    assert "To do: correct the path in section paths, or the permissions" in text


def test_plan_of_a_source_that_spark_plans_says_so(tmp_path: Path) -> None:
    (tmp_path / "in" / "t").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "in" / "t" / "a.parquet")
    path = written(
        tmp_path,
        "job: frames\nsource: {{type: spark, format: parquet, datasets: {{t: {{path: '{folder}/in/t'}}}}}}\n"
        "sink: {{publish: replace}}\npaths: {{store: s, staging: t, output: o}}\n",
    )
    plan = plan_dry_run(Job.from_file(path)._folders)
    assert plan.unknown == "the source of type spark is planned by Spark, in a run"
    assert plan.unknown in CliRunner(env={"COLUMNS": "200"}).invoke(app, ["check", str(path), "--plan"]).stdout


def test_folder_without_permission_is_a_problem(tmp_path: Path) -> None:
    """The superuser may write everywhere."""
    path = with_input(tmp_path)
    (tmp_path / "state").mkdir(mode=0o500)
    folders = [("paths.store", 11), ("paths.staging", 12), ("paths.output", 13)]
    assert found(check_file(path)) == (folders if os.geteuid() else [])


@pytest.mark.parametrize("folder", ["/proc/s", "/sys", "/dev/s/t", "{tmp}/link/s"])
def test_folder_of_the_kernel_is_a_problem_also_for_the_superuser(tmp_path: Path, folder: str) -> None:
    path = with_input(tmp_path)
    (tmp_path / "link").symlink_to("/proc")
    path.write_text(path.read_text().replace("state/store", folder.format(tmp=tmp_path)))
    (problem,) = check_file(path).problems
    assert (problem.id, problem.setting, problem.exit_code) == ("SETTINGS_INVALID", "paths.store", 2)
    assert "a folder of the job is on a file system of the kernel [path=" in problem.text
    assert problem.remedy == "correct the path in section paths"


def test_folder_in_shared_memory_passes() -> None:
    assert check_folder(LocalFileSystem(), "/dev/shm/of-no-job/s", is_used=False).endswith("/s will be created")


def test_file_in_the_place_of_a_folder_is_a_problem(tmp_path: Path) -> None:
    path = with_input(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "output").write_text("")
    result = check_file(path)
    assert found(result) == [("paths.output", 13)]
    assert "found a file" in result.problems[0].text


def test_unreadable_secret_file_is_a_problem_of_its_setting(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "job: shop\nsource:\n  type: sql\n  url: sqlite:///{folder}/shop.db\n  password: ${{file:/no/such/file}}\n"
        "  tables: [t]\n  watermark: id\n  lookback: 0\npaths: {{store: s, staging: t, output: o}}\n",
    )
    sqlite3.connect(tmp_path / "shop.db").close()
    result = check_file(path, connect=False)
    assert found(result) == [("source.password", 5)]
    assert "/no/such/file" in result.problems[0].text


def test_unreachable_brokers_are_noticed_within_seconds(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = written(tmp_path, KAFKA, port=port)
    result = check_file(path)
    assert found(result) == [("source.brokers", 4)]
    assert "accepts connections" not in result.problems[0].text
    assert result.exit_code == 4
    with pytest.raises(SourceUnavailableError, match=r"no dataset could be planned.*job\.yaml:4:3.*brokers can't be"):
        check_before_run(Job.from_file(path)._folders, needs_java=False)
    assert not (tmp_path / "s").exists()


class HttpServer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class ServerThatHangsUp(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(100)


class PostgresqlServer(ServerThatHangsUp):
    def finish(self) -> None:
        self.request.sendall(b"E\0\0\0\x40SFATAL\0unsupported frontend protocol\0")


@pytest.mark.parametrize("handler", [HttpServer, ServerThatHangsUp, PostgresqlServer])
def test_port_of_another_service_is_named_as_one_that_is_not_kafka_s(
    tmp_path: Path, handler: type[socketserver.BaseRequestHandler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distcommit.sources.kafka.source._CHECK_TIMEOUT_S", 1.0)  # the HTTP server never responds
    monkeypatch.setattr("distcommit.sources.kafka.client._FIRST_TRY_S", 0.3)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        (problem,) = check_file(written(tmp_path, KAFKA, port=server.server_address[1])).problems
        server.shutdown()
    assert problem.setting == "source.brokers"
    assert f"{address} accepts connections, but does not respond as a Kafka broker" in problem.text
    assert problem.remedy.startswith("check that source.brokers has the port of a Kafka listener")


def test_offline_check_connects_to_nothing(tmp_path: Path) -> None:
    result = check_file(written(tmp_path), connect=False)
    assert result.passed
    assert [part.name for part in result.checks if part.outcome == "skipped"] == ["java", "folders", "source", "sink"]


def test_invalid_settings_are_reported_without_further_checks(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace("format: csv", "format: cvs"))
    result = check_file(path)
    assert (result.job, result.passed, result.exit_code) == ("", False, 2)
    assert "format" in result.problems[0].text


def test_setting_that_differs_from_the_store_is_a_problem(tmp_path: Path) -> None:
    path = with_input(tmp_path)
    job = Job.from_file(path)
    job._folders.opened(create=True)
    from distcommit.stores.state.recorded_fixed_settings import record_settings

    record_settings(job.open_store(create=False), job._folders.fixed_settings())
    path.write_text(path.read_text().replace("orders.db", "other.db"))
    result = check_file(path)
    assert [problem.check for problem in result.problems] == ["fixed settings"]
    assert "sink.file" in result.problems[0].text
    assert result.problems[0].remedy


class TestChangedFolders:
    """After a first run, the job file names other folders."""

    def check(self, folder: Path, before: str, after: str) -> CheckResult:
        path = with_input(folder)
        store = Job.from_file(path)._folders.opened(create=True)
        record_cut_began(store, begin_run(store, "first"), ())
        assert check_file(path).passed
        path.write_text(path.read_text().replace(before, after))
        existing = names_below(folder)
        result = check_file(path)
        assert names_below(folder) == existing
        return result

    def test_other_output_is_a_problem_with_the_way_back(self, tmp_path: Path) -> None:
        result = self.check(tmp_path, "state/output", "state/other")
        (problem,) = result.problems
        assert problem.text.startswith("OUTPUT_OLDER_THAN_STORE")
        assert problem.remedy.startswith("if paths.output was changed, set it to the former folder again, or move")
        assert result.exit_code == 5

    def test_other_store_is_a_problem(self, tmp_path: Path) -> None:
        result = self.check(tmp_path, "state/store", "state/other")
        assert [problem.text.partition(":")[0] for problem in result.problems] == ["FOLDER_OF_ANOTHER_STORE"]
        assert result.exit_code == 5


UNREACHABLE = "url: {type}://u@127.0.0.1:1/db\n  password: x\n  table: t"


@pytest.mark.parametrize(("kind", "reason"), [("postgresql", "Connection refused Is"), ("mariadb", "Can't connect to")])
def test_unreachable_target_has_an_id_one_line_and_a_remedy(tmp_path: Path, kind: str, reason: str) -> None:
    pytest.importorskip("psycopg" if kind == "postgresql" else "pymysql")
    with_input(tmp_path)
    path = written(tmp_path)
    text = path.read_text().replace("type: sqlite", f"type: {kind}")
    path.write_text(text.replace(f"path: {tmp_path}/orders.db", UNREACHABLE.format(type=kind)))
    (problem,) = check_file(path).problems
    assert (problem.id, problem.setting, problem.exit_code) == ("SINK_UNAVAILABLE", "sink.url", 4)
    assert problem.text.startswith("SINK_UNAVAILABLE: the check of the sink failed; found OperationalError: ")
    assert reason in problem.text
    assert not set("\n\t") & set(problem.text)
    assert problem.remedy == "start the target, or correct the address or the user of the sink, and run again"
    with pytest.raises(SinkUnavailableError, match=r"the check of the sink failed.*To do: start the target"):
        check_before_run(Job.from_file(path)._folders, needs_java=False)


NO_PASSWORD = 'connection to server at "127.0.0.1", port 1 failed: fe_sendauth: no password supplied'
WRONG_PASSWORD = 'connection failed: FATAL:  password authentication failed for user "u"'
DENIED = (1045, "Access denied for user 'u'@'localhost' (using password: YES)")


@pytest.mark.parametrize(
    ("client", "refusal", "written_password", "remedy"),
    [
        ("psycopg", (NO_PASSWORD,), "${PASSWORD_OF_TEST:-}", " (here the variable PASSWORD_OF_TEST, which is empty)"),
        ("psycopg", (WRONG_PASSWORD,), "${PASSWORD_OF_TEST:-x}", " (here the variable PASSWORD_OF_TEST)"),
        ("psycopg", ('connection failed: FATAL:  role "u" does not exist',), "xyzzy", ""),
        ("pymysql", DENIED, "xyzzy", ""),
    ],
)
@pytest.mark.parametrize("section", ["sink", "source"])
def test_rejected_password_is_a_wrong_setting_at_the_password(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    client: str,
    refusal: tuple[object, ...],
    written_password: str,
    remedy: str,
    section: str,
) -> None:
    module = pytest.importorskip(client)

    def refuse(*_: object, **__: object) -> None:
        raise module.OperationalError(*refusal)

    monkeypatch.setattr(module, "connect", refuse)
    if "x}" in written_password:
        monkeypatch.setenv("PASSWORD_OF_TEST", "wrong")
    with_input(tmp_path)
    path = written(tmp_path)
    text, kind = path.read_text(), "postgresql" if client == "psycopg" else "mariadb"
    if section == "sink":
        text = text.replace("type: sqlite", f"type: {kind}")
        text = text.replace(f"path: {tmp_path}/orders.db", UNREACHABLE.format(type=kind))
    else:
        pytest.importorskip("sqlalchemy")
        url = f"{kind.replace('mariadb', 'mysql')}://u@127.0.0.1:1/db"
        own = f"source:\n  type: sql\n  url: {url}\n  password: x\n  tables: [t]\n"
        own += "  watermark: id\n  table_type: append_only\n  lookback: 0\n"
        text = own.join((text[: text.index("source:")], text[text.index("sink:") :]))
    path.write_text(text.replace("password: x", f'password: "{written_password}"'))
    (problem,) = check_file(path).problems
    assert (problem.id, problem.setting, problem.exit_code) == ("CREDENTIALS_REJECTED", f"{section}.password", 2)
    assert problem.remedy == f"set {section}.password{remedy}"
    with pytest.raises(ConfigurationError, match=rf"CREDENTIALS_REJECTED: .*To do: set {section}\.password"):
        check_before_run(Job.from_file(path)._folders, needs_java=False)


class TestBeforeARun:
    def test_several_problems_raise_one_error_with_all_of_them(self, tmp_path: Path) -> None:
        path = written(tmp_path)
        path.write_text(path.read_text().replace("orders.db", "missing/orders.db"))
        with pytest.raises(CheckFailedError, match=r"2 problems.*source\.paths.*sink\.path") as failed:
            check_before_run(Job.from_file(path)._folders, needs_java=False)
        assert [(problem.line, problem.column) for problem in failed.value.problems] == [(4, 3), (9, 3)]

    def test_error_of_several_problems_has_the_innermost_cause_of_each(self, tmp_path: Path) -> None:
        (tmp_path / ("long" * 60)).mkdir()
        path = written(tmp_path)
        text = path.read_text().replace("orders.db", "missing/orders.db")
        path.write_text(text.replace("/in/", f"/{'long' * 60}/in/"))
        with pytest.raises(CheckFailedError) as failed:
            check_before_run(Job.from_file(path)._folders, needs_java=False)
        assert "source.paths: SOURCE_FILE_UNREADABLE: " in failed.value.found
        assert "...; found the folder does not exist; sink.path: " in failed.value.found
        assert "; ;" not in failed.value.found
        assert failed.value.found.endswith("; found a missing folder")

    def test_several_outages_have_the_exit_code_of_an_outage_in_check_and_run(self, tmp_path: Path) -> None:
        path = written(tmp_path)
        path.write_text(path.read_text().replace("type: sqlite", "type: postgresql"))
        text = path.read_text().replace(f"path: {tmp_path}/orders.db", UNREACHABLE.format(type="postgresql"))
        path.write_text(text)
        assert check_file(path).exit_code == 4
        with pytest.raises(CheckFailedError, match=r"2 problems.*source\.paths.*sink\.url") as failed:
            check_before_run(Job.from_file(path)._folders, needs_java=False)
        assert failed.value.exit_code == 4
        assert pickle.loads(pickle.dumps(failed.value)).exit_code == 4

    def test_run_after_an_unclean_one_begins_although_the_source_is_unavailable(self, tmp_path: Path) -> None:
        path = written(tmp_path)
        job = Job.from_file(path)
        store = job._folders.opened(create=True)
        put_run_marker(store.fs, store.roots.output, 1, Marker.BEGAN)
        check_before_run(job._folders, needs_java=False)
        put_run_marker(store.fs, store.roots.output, 1, Marker.CLEAN)
        with pytest.raises(SourceUnavailableError):
            check_before_run(job._folders, needs_java=False)

    def test_missing_java_is_reported_before_anything_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", "/no/java")
        with pytest.raises(ConfigurationError, match="Spark needs Java"):
            Job.from_file(with_input(tmp_path)).run()
        assert not (tmp_path / "state").exists()


class TestDryRun:
    def test_datasets_are_listed_with_size_and_columns(self, tmp_path: Path) -> None:
        plan = check_file(with_input(tmp_path), plan=True).plan
        assert plan is not None
        assert (plan.unit, plan.size, plan.datasets_count) == ("bytes", 23, 1)
        (orders,) = plan.datasets
        assert (orders.dataset, orders.work_units, orders.size) == ("orders", 1, 23)
        assert orders.columns is not None
        assert [column.name for column in orders.columns][:2] == ["id", "price"]

    def test_rows_of_tables_are_counted(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "shop.db") as database:
            database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
            database.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x") for n in range(7)])
        path = written(
            tmp_path,
            "job: shop\nsource: {{type: sql, url: 'sqlite:///{folder}/shop.db', tables: [t, missing], watermark: id,"
            " lookback: 0}}\npaths: {{store: s, staging: t, output: o}}\n",
        )
        plan = check_file(path, plan=True).plan
        assert plan is not None
        assert (plan.unit, plan.size, plan.datasets_count) == ("records", 7, 1)
        assert [(dataset.dataset, bool(dataset.problem)) for dataset in plan.datasets] == [
            ("missing", True),
            ("t", False),
        ]

    def test_rows_that_lookback_leaves_for_later_are_not_counted(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "shop.db") as database:
            database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
            database.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(1, 8)])
        path = written(
            tmp_path,
            "job: shop\nsource: {{type: sql, url: 'sqlite:///{folder}/shop.db', tables: [t], watermark: id,"
            " lookback: 300}}\npaths: {{store: s, staging: t, output: o}}\n",
        )
        plan = check_file(path, plan=True).plan
        assert plan is not None
        assert plan.datasets_count == 0
        assert (plan.size, [note for note in plan.notes if "7 records left for later" in note] != []) == (0, True)

    def test_foreign_position_fails_the_check(self, tmp_path: Path) -> None:
        """The watermark column was changed after the first run."""
        path = shop(tmp_path, "[orders, payments]")
        Job.from_file(path)._folders.opened(create=True)
        Job.from_file(path).set_watermark("orders", {PARTITION: 1}, new=True)
        shop(tmp_path, "[orders, payments]", watermark="name")
        done = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["check", str(path), "--plan"])
        assert done.exit_code == 1, done.output
        assert "DATASET_NOT_PLANNED: 1 of 2 datasets can't be planned" in done.stdout
        assert "the stored position is not one of the watermark column" in done.stdout
        assert "not ready: 1 problem found" in done.stdout


def shop(folder: Path, tables: str, *, watermark: str = "id") -> Path:
    """Return a job that reads tables of a SQLite file, which has `payments` and `orders`."""
    with sqlite3.connect(folder / "shop.db") as database:
        for table in ("payments", "orders"):
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY, name VARCHAR(9) UNIQUE)")
            database.execute(f"INSERT OR REPLACE INTO {table} VALUES (1, 'a'), (2, 'b')")
    return written(
        folder,
        "job: shop\nsource:\n  type: sql\n  url: sqlite:///{folder}/shop.db\n  tables: {tables}\n"
        "  watermark: {watermark}\n  lookback: 0\npaths: {{store: s, staging: t, output: o}}\n",
        tables=tables,
        watermark=watermark,
    )


class TestMissingTables:
    def test_misspelt_table_fails_the_check_with_similar_names(self, tmp_path: Path) -> None:
        path = shop(tmp_path, "[orders, paymnts]")
        done = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["check", str(path)])
        assert done.exit_code == 1
        assert "SOURCE_TABLE_MISSING" in done.stdout
        assert "selected=1 of 2 tables" in done.stdout
        assert "paymnts (similar: payments)" in done.stdout
        assert "To do: correct source.tables" in done.stdout
        assert found(check_file(path)) == [("source.tables", 5)]

    def test_run_reads_the_tables_that_exist(self, tmp_path: Path) -> None:
        check_before_run(Job.from_file(shop(tmp_path, "[orders, paymnts]"))._folders, needs_java=False)

    def test_first_run_without_any_table_ends_before_spark_starts(self, tmp_path: Path) -> None:
        done = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["run", str(shop(tmp_path, "[paymnts]"))])
        assert done.exit_code == 1
        assert "paymnts (similar: payments)" in done.stderr
        assert not (tmp_path / "s").exists()

    def test_later_run_without_any_table_begins_and_replays(self, tmp_path: Path) -> None:
        path = shop(tmp_path, "[paymnts]")
        Job.from_file(path)._folders.opened(create=True)
        check_before_run(Job.from_file(path)._folders, needs_java=False)

    def test_view_is_a_table(self, tmp_path: Path) -> None:
        path = shop(tmp_path, "[some_orders]")
        with sqlite3.connect(tmp_path / "shop.db") as database:
            database.execute("CREATE VIEW some_orders AS SELECT * FROM orders")
        assert check_file(path).passed


def test_missing_package_of_a_converter_is_reported_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    path = shop(tmp_path, "[orders]")
    path.write_text(path.read_text() + "converters: [{type: sql, columns: {twice: id * 2}}]\n")
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["check", str(path), "--offline"])
    assert done.exit_code == 2
    assert "PACKAGE_MISSING" in done.stdout
    assert install_command("sql") in " ".join(done.stdout.split())


def test_problem_without_a_remedy_of_its_own_has_the_action_of_its_id(tmp_path: Path) -> None:
    path = shop(tmp_path, "[orders]")
    path.write_text(path.read_text() + "row_checkers: [{type: python, class: no.such.module:Checker}]\n")
    (problem,) = check_file(path, connect=False).problems
    assert problem.id == "CUSTOM_CLASS_INVALID"
    assert problem.remedy == ERRORS["CUSTOM_CLASS_INVALID"].action


class TestCommand:
    def run(self, path: Path, *options: str, code: int = 0) -> str:
        done = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["check", str(path), *options])
        assert done.exit_code == code, done.output
        return done.stdout

    def test_problem_is_shown_with_its_line_and_what_to_do(self, tmp_path: Path) -> None:
        path = written(tmp_path)
        text = " ".join(self.run(path, code=4).split())
        assert "not ready: 1 problem found" in text
        assert f"{path}:4:3 source.paths" in text
        assert "To do: create it, or correct source.paths" in text

    def test_problem_has_its_column_and_id_in_text_and_json(self, tmp_path: Path) -> None:
        path = written(tmp_path)
        (problem,) = json.loads(self.run(path, "--json", code=4))["problems"]
        position = (problem["id"], problem["line"], problem["column"])
        assert position == ("SOURCE_FILE_UNREADABLE", 4, 3)
        path.write_text(path.read_text().replace("format: csv", "format: cvs"))
        (problem,) = json.loads(self.run(path, "--json", code=2))["problems"]
        assert (problem["id"], problem["line"], problem["column"]) == ("JOB_FILE_INVALID", 5, 3)
        assert f"{path}:5:3 JOB_FILE_INVALID source.format must" in " ".join(self.run(path, code=2).split())

    def test_plan_is_shown(self, tmp_path: Path) -> None:
        text = self.run(with_input(tmp_path), "--plan")
        assert "ready: no problem was found" in text
        assert "a run would read 1 dataset, 23 bytes" in text
        assert "id string, price string" in " ".join(text.split())

    def test_json_has_the_whole_result(self, tmp_path: Path) -> None:
        document: Mapping[str, Any] = json.loads(self.run(with_input(tmp_path), "--plan", "--json"))
        assert document["passed"] is True
        assert document["plan"]["datasets"][0]["size"] == 23
        outcomes: Sequence[str] = [part["outcome"] for part in document["checks"]]
        assert set(outcomes) == {"passed", "skipped"}

    def test_run_lists_several_problems_before_its_error(self, tmp_path: Path) -> None:
        path = written(tmp_path)
        path.write_text(path.read_text().replace("orders.db", "missing/orders.db"))
        done = CliRunner().invoke(app, ["run", str(path)])
        assert done.exit_code == 2
        text = " ".join(done.stderr.split())  # lines are wrapped, and long paths with them
        assert f"{path}:4:3 source.paths" in text
        assert f"{path}:9:3 sink.path" in text
        assert "the job can't run: 2 problems were found before it began" in text
