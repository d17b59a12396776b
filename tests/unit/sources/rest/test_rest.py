"""The REST source on a real server: plans, requests, records read over several runs, and error messages."""

from __future__ import annotations

import json
import pickle
import socket
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError

from distcommit.core.errors import ConfigurationError, SourceError, TransientError
from distcommit.core.interfaces.source import SourceState
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark
from distcommit.sources.rest.source import RestSource
from distcommit.sources.rest.watermark_field import WatermarkField
from tests.servers.rest import RestServer, wait_for_end_of_second
from tests.unit.sources.sql.sql_tables import Reader

TIME = {"field": "at", "type": "time", "since": "since", "lookback": 0}
NUMBER = {"field": "at", "type": "integer", "since": "since", "lookback": 0}
TEXT = {"field": "at", "type": "text", "since": "since", "lookback": 0}
PAGING = {
    "header": {"type": "link"},
    "body": {"type": "link", "path": "next"},
    "cursor": {"type": "cursor", "path": "next", "param": "cursor"},
    "page": {"type": "page", "param": "page"},
    "offset": {"type": "page", "param": "offset", "first_page": 0, "step": 3},
}


class Lists:
    """The lists of one test."""

    def __init__(self, server: RestServer, name: str) -> None:
        self.server, self.name = server, name

    def put(self, *values: Any, **of: Any) -> None:
        """Replace the list with these values, numbered in this order."""
        rows = [json.dumps({"at": value, "n": number}) for number, value in enumerate(values)]
        is_number = any(type(value) is int for value in values)
        self.server.put(self.name, **{"rows": rows, "is_number": is_number, **of})

    def source(self, how: str = "cursor", **settings: Any) -> RestSource:
        """Return a source with a time watermark by default, and without retries."""
        where = {"url": f"{self.server.url}/{how}/{{dataset}}", "datasets": [self.name], "paging": PAGING[how]}
        records = "" if how == "header" else "data.items"
        base = {"type": "rest", **where, "records": records, "watermark": TIME, "retries": 0}
        return RestSource.model_validate({**base, **settings})

    def reader(self, how: str = "cursor", **settings: Any) -> Reader:
        return Reader(self.source(how, **settings), self.name)


@pytest.fixture
def lists(rest_server: RestServer, request: pytest.FixtureRequest) -> Lists:
    new_lists = Lists(rest_server, f"u{abs(hash(request.node.nodeid))}-{time.monotonic_ns()}")
    new_lists.put()
    return new_lists


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    """Return the numbers of records, and check that their offsets have no gap."""
    return [json.loads(row["value"])["n"] for row in rows]


def at(second: float, zone: str = "Z") -> str:
    return (datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).replace(tzinfo=None).isoformat() + zone


def failure(reader: Reader) -> str:
    plan = reader.plan()
    assert plan is not None
    with pytest.raises(SourceError) as raised:
        reader.read(plan)
    return str(raised.value)


@pytest.mark.parametrize("paging", PAGING)
def test_each_paging_type_reaches_the_last_page_and_the_next_run_resumes(lists: Lists, paging: str) -> None:
    values = [at(second // 2) for second in range(10)]
    lists.put(*values[:8])
    reader = lists.reader(paging)
    assert numbers(reader.run()) == list(range(8))
    later = datetime.now(UTC) + timedelta(seconds=0.3)
    lists.put(*values[:8], later.isoformat(), later.isoformat())
    assert reader.run() == []
    wait_for_end_of_second(later)
    assert numbers(reader.run()) == [8, 9]
    assert [row["_offset"] for row in reader.rows] == list(range(10))


def test_times_of_an_unfinished_second_wait() -> None:
    field = WatermarkField.model_validate(TIME)
    now = datetime(2024, 1, 1, 12, 0, 0, 999_999, timezone(timedelta(hours=2)))
    assert field.end_of_plan(now) == "2024-01-01T10:00:00.000000Z"
    assert field.model_copy(update={"lookback": 3600}).end_of_plan(now) == "2024-01-01T09:00:00.000000Z"


@pytest.mark.parametrize(
    ("written", "lookback_s"),
    [
        ("2024-01-01T12:00:00Z", 0), ("20240101T120000", 0), ("2024-01-01 12:00:00.5+02:00", 0),
        ("2024-W01-1T12:00:00", 0),
        ("2024-01-01T12:00", 60), ("20240101T1200+0200", 60), ("2024-01-01T12", 3600), ("2024-01-01T12Z", 3600),
        ("2024-01-01", 86_400), ("20240101", 86_400), ("2024-W01-1", 86_400), ("2024-W01", 604_800),
    ],
)  # fmt: skip
def test_times_less_precise_than_the_lookback_are_rejected(lists: Lists, written: str, lookback_s: int) -> None:
    """If a time names only its day, more records with that time may arrive until the day ends."""
    lists.put(written)
    enough = lists.reader(watermark={**TIME, "lookback": lookback_s})
    assert numbers(enough.run()) == [0]
    if lookback_s:
        reason = failure(lists.reader(watermark={**TIME, "lookback": lookback_s - 1}))
        assert f"a lookback of at least {lookback_s}" in reason
        assert repr(written) in reason
        assert f"set source.watermark.lookback to {lookback_s}" in reason


def test_record_bytes_are_kept_unchanged(lists: Lists) -> None:
    rows = ['{ "at" : "2024-01-01T00:00:00Z", "price":1.10000000000000000001, "at2":null}']
    lists.put(rows=rows)
    (row,) = lists.reader().run()
    assert row == {"value": rows[0].encode(), "_partition": "rows", "_offset": 0}


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("zone", ["Z", "+00:00", ".000001Z", ""])
def test_ties_at_the_watermark_are_neither_lost_nor_doubled(lists: Lists, zone: str, exclusive: bool) -> None:
    """Holds for inclusive and exclusive `since`, at any precision."""
    values = [at(second // 3, zone) for second in range(30)]
    # `until` is not sent: the source itself stops before the watermark's value.
    lists.put(*values, exclusive=exclusive)
    reader = lists.reader(
        watermark={**TIME, "format": "%Y-%m-%dT%H:%M:%SZ" if zone == "Z" else "%Y-%m-%dT%H:%M:%S.%fZ"}
    )
    for second in (4, 4.5, 9, 100):
        plan = reader.plan()
        assert plan is not None
        (unit,) = plan.work_units
        end = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
        high = Watermark({"": f"{end.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"}, "at:time")
        reader.read(replace(plan, work_units=(replace(unit, expected_high=high),)))
    assert numbers(reader.rows) == list(range(30))


@pytest.mark.parametrize("exclusive", [False, True])
def test_newest_group_of_integers_waits_unless_values_are_unique(lists: Lists, exclusive: bool) -> None:
    lists.put(1, 2, 2, 3, 3, exclusive=exclusive)
    reader, unique = lists.reader(watermark=NUMBER), lists.reader(watermark={**NUMBER, "unique": True})
    assert numbers(reader.run()) == [0, 1, 2]
    assert reader.run() == []
    lists.put(1, 2, 2, 3, 3, 3, 3, 3, 4, exclusive=exclusive)
    assert numbers(reader.run()) == [3, 4, 5, 6, 7]
    assert reader.watermark == Watermark({"": (4,), "rows": 8}, "at:integer")
    lists.put(1, 2, 3, exclusive=exclusive)
    assert numbers(unique.run()) == [0, 1, 2]
    lists.put(1, 2, 3, 4, exclusive=exclusive)
    assert numbers(unique.run()) == [3]


def test_text_is_ordered_by_code_points_and_its_newest_group_waits(lists: Lists) -> None:
    lists.put("A", "B", "a", "ä", "ä")
    reader = lists.reader(watermark=TEXT)
    assert numbers(reader.run()) == [0, 1, 2]
    lists.put("A", "B", "a", "ä", "ä", "ö")
    assert numbers(reader.run()) == [3, 4]


def test_late_values_are_lost_without_lookback_and_read_with_it(lists: Lists) -> None:
    naive, careful = lists.reader(watermark=NUMBER), lists.reader(watermark={**NUMBER, "lookback": 3})
    lists.put(1, 3, 4)
    for reader in (naive, careful):
        reader.run()
    lists.put(1, 2, 3, 4, 5, 6, 7)
    for reader in (naive, careful):
        reader.run()
    assert [json.loads(row["value"])["at"] for row in naive.rows] == [1, 3, 4, 5, 6]
    assert [json.loads(row["value"])["at"] for row in careful.rows] == [1, 2, 3]


def test_times_are_read_up_to_now_minus_the_lookback(lists: Lists) -> None:
    now = datetime.now(UTC)
    times = [(now + timedelta(seconds=seconds)).isoformat() for seconds in (-3600, -90, -30, 3600)]
    lists.put(*times)
    assert numbers(lists.reader(watermark={**TIME, "lookback": 60}).run()) == [0, 1]
    assert numbers(lists.reader().run()) == [0, 1, 2]


def test_read_failure_of_times_is_planned_up_to_its_end(lists: Lists) -> None:
    lists.put(*(at(second) for second in range(6)))
    reader = lists.reader()
    high = Watermark({"": "2024-01-01T00:00:03.000000Z"}, "at:time")
    plan = reader.plan(high)
    assert plan is not None
    assert plan.work_units[0].expected_high == high
    assert numbers(reader.read(plan)) == [0, 1, 2]
    assert numbers(reader.run()) == [3, 4, 5]


def test_end_that_is_known_only_after_reading_is_determined_again(lists: Lists) -> None:
    lists.put(1, 2, 3, 4)
    reader = lists.reader(watermark=NUMBER)
    plan = reader.plan(Watermark({}, "at:integer"))
    assert plan is not None
    assert numbers(reader.read(plan)) == [0, 1, 2]


def test_watermark_in_the_future_waits(lists: Lists) -> None:
    """The clock of the planning machine may have been set back."""
    lists.put(at(0))
    reader = lists.reader()
    reader.watermark = Watermark({"": "2999-01-01T00:00:00.000000Z", "rows": 1}, "at:time")
    assert reader.plan() is None
    assert reader.problems == []


def test_server_is_queried_from_slightly_before_the_watermark(lists: Lists) -> None:
    lists.put(at(0))
    reader = lists.reader(
        watermark={**TIME, "until": "until", "format": "%Y-%m-%d"}, params={"sort": "at", "of": "{dataset}"}
    )
    reader.run()
    assert reader.watermark is not None
    reader.watermark = Watermark({**reader.watermark.positions, "": at(86400 * 2, ".000000Z")}, "at:time")
    reader.run()
    first, *_, last = [request["arguments"] for request in lists.server.asked(lists.name)]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%d")
    assert first == {"sort": "at", "of": lists.name, "until": tomorrow}
    assert last == {"sort": "at", "of": lists.name, "since": "2024-01-02", "until": tomorrow}


def test_seconds_since_1970_do_not_depend_on_the_machine_s_time_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """West of UTC, a local time would query too late a range, and the records before it would be lost."""
    field = WatermarkField.model_validate({**TIME, "until": "until", "format": "%s"})
    low, high = "2024-01-01T00:00:00.500000Z", "2024-07-01T00:00:00.000000Z"
    try:
        for zone in ("UTC", "America/New_York", "Asia/Tokyo"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert field.range_params(low, high) == {"since": "1704067199", "until": "1719792001"}
        literal = field.model_copy(update={"format": "%%s %s %Y"})
        assert literal.range_params(low, None) == {"since": "%s 1704067199 2023"}
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("form", "alike"),
    [
        ("%Y", "2024-01-01 00:00 and 2024-01-02 00:00"),
        ("%Y-%m", "2024-01-01 00:00 and 2024-01-02 00:00"),
        ("%G-W%V", "2024-01-01 00:00 and 2024-01-02 00:00"),
        ("%Y %a", "2024-01-01 00:00 and 2024-01-08 00:00"),
        ("%Y-%d", "2024-01-01 00:00 and 2024-02-01 00:00"),
        ("%d.%m.", "2024-01-01 00:00 and 2025-01-01 00:00"),
        ("%Y-%m-%d %S", "2024-01-01 00:00 and 2024-01-01 00:01"),
        ("%Y-%m-%d %M:%S", "2024-01-01 00:00 and 2024-01-01 01:00"),
        ("%Y-%m-%d %I:%M:%S", "2024-01-01 00:00 and 2024-01-01 12:00"),
        ("now", "2024-01-01 00:00 and 2024-01-02 00:00"),
    ],
)
def test_format_coarser_than_the_margin_of_a_query_is_rejected(form: str, alike: str) -> None:
    """With months and a margin of a day, a server would omit the days between, and their records would be lost."""
    with pytest.raises(ValidationError, match=f"it writes {alike} alike"):
        WatermarkField.model_validate({**TIME, "until": "until", "format": form})


@pytest.mark.parametrize(
    ("form", "since", "until"),
    [
        ("%Y-%m-%dT%H", "2024-02-29T10", "2024-03-02T12"),
        ("%Y-%m-%d %I", "2024-02-29 10", "2024-03-02 12"),
        ("%d.%m.%y", "29.02.24", "02.03.24"),
        ("%Y-%j", "2024-060", "2024-062"),
        ("%G-W%V-%u", "2024-W09-4", "2024-W09-6"),
        ("%Y-%m-%d %%S", "2024-02-29 %S", "2024-03-02 %S"),
        ("%Y-%m-%d %I:%M:%S %p", "2024-03-01 10:29:59 AM", "2024-03-01 12:30:01 PM"),
    ],
)
def test_query_margin_is_a_day_or_a_second_by_the_precision_of_the_format(form: str, since: str, until: str) -> None:
    field = WatermarkField.model_validate({**TIME, "until": "until", "format": form})
    low, high = "2024-03-01T10:30:00.000000Z", "2024-03-01T12:30:00.000000Z"
    assert field.range_params(low, high) == {"since": since, "until": until}


def test_reading_may_end_between_two_values_and_resumes_there(lists: Lists) -> None:
    lists.put(*(at(second) for second in (0, 1, 1, 1, 1, 2, 3, 4, 5, 5)))
    reader = lists.reader()
    for _ in range(10):
        if plan := reader.plan():
            reader.read(plan, batches=1)
    assert numbers(reader.rows) == list(range(10))


def test_unpaged_answer_is_the_whole_list(lists: Lists) -> None:
    lists.put(at(0), at(1), limit=100)
    assert numbers(lists.reader(url=f"{lists.server.url}/none/{{dataset}}", paging={"type": "none"}).run()) == [0, 1]


def test_pages_that_end_too_early_are_reported_and_no_record_is_skipped(lists: Lists) -> None:
    """A wrong `path` of the link causes this."""
    lists.put(*(at(second) for second in range(9)))
    for wrong in ({"type": "link", "path": "nxt"}, {"type": "none"}, {"type": "link"}):
        message = failure(lists.reader(url=f"{lists.server.url}/body/{{dataset}}", paging=wrong))
        assert "although the server has more records" in message
        assert "source.paging" in message


@pytest.mark.parametrize(
    ("values", "watermark", "message"),
    [
        ([at(1), at(0)], TIME, "another order"),
        ([at(9), at(8), at(7), at(6)], TIME, "another order"),
        ([at(0), at(0), at(0), at(-1)], TIME, "another order"),  # in the next page
        ([2, 1], NUMBER, "another order"),
        ([at(0), None], TIME, "NoneType"),
        ([at(0), "yesterday"], TIME, "yesterday"),
        ([at(0), "0001-01-01T00:00:00+01:00"], TIME, "not within the years"),
        ([1, 2.5], NUMBER, "a float"),
        ([1, True], NUMBER, "a bool"),
        ([1, 2**63 - 1], NUMBER, "must be a 64-bit integer below"),
        ([1, -(2**63) - 1], NUMBER, "must be a 64-bit integer below"),
        ([1, 2**70], NUMBER, "64-bit"),
        ([1, "2"], NUMBER, "a str"),
    ],
)
def test_record_without_a_valid_place_in_the_order_fails_its_list(
    lists: Lists, values: list[Any], watermark: dict[str, Any], message: str
) -> None:
    lists.put(*values)
    reader = lists.reader(watermark=watermark)
    assert message in failure(reader)
    assert reader.watermark is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<html>welcome</html>", "an answer can't be read"),
        ("", "an answer can't be read"),
        ('{"data": {"items": [', "an answer can't be read"),
        ('{"data": {"rows": []}}', "no field 'items' among rows"),
        ('{"data": {"items": {}}}', "an answer can't be read"),
        ('{"data": {"items": []}, "next": {"a": 1}}', "must be a text or a number"),
        ('{"data": {"items": ["x"]}}', "a record has no position"),
        ('{"data": {"items": [{"n": 1}]}}', "no field 'at' among n"),
        ('{"data": {"items": ' + "[" * 100_000 + "]" * 100_000 + "}}", "nested too deeply"),
    ],
)
def test_malformed_answer_fails_its_list(lists: Lists, body: str, message: str) -> None:
    lists.put(first=[[200, {}, body]])
    assert message in failure(lists.reader())


@pytest.mark.thorough
def test_endless_pages_are_reported(lists: Lists) -> None:
    items = json.dumps([{"at": at(0), "n": 0}])
    back = {"data": {"items": []}, "next": 7}
    lists.put(first=[[200, {}, json.dumps(back)]] * 3)
    assert "never end" in failure(lists.reader())
    ignored = [[200, {}, f'{{"data": {{"items": {items}}}}}']] * 2
    lists.put(first=ignored)
    assert "the same answer twice" in failure(lists.reader("page"))
    empty = [[200, {}, json.dumps({"data": {"items": []}, "next": cursor})] for cursor in range(1, 1100)]
    lists.put(first=empty)
    assert "1001 answers without records" in failure(lists.reader())


def test_link_to_another_server_is_not_followed(lists: Lists) -> None:
    for elsewhere in ("http://127.0.0.1:1/more", "//other.example/more", "https://127.0.0.1/more"):
        lists.put(first=[[200, {}, json.dumps({"data": {"items": []}, "next": elsewhere})]])
        assert "a link must not lead to another server" in failure(lists.reader("body"))
    lists.put(first=[[302, {"Location": "http://127.0.0.1:1/more"}, ""]])
    assert "set source.url to where it sends" in failure(lists.reader())


_TODO = {400: "source.params", 401: "source.headers", 403: "let this user", 404: "source.datasets"}


@pytest.mark.parametrize(("status", "todo"), _TODO.items())
def test_client_error_is_reported_and_not_retried(lists: Lists, status: int, todo: str) -> None:
    lists.put(first=[[status, {}, "because"]])
    message = failure(lists.reader(retries=3))
    assert f"{status} " in message
    assert "because" in message
    assert todo in message
    assert len(lists.server.asked(lists.name)) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_busy_server_is_retried_and_finally_reported(lists: Lists, status: int) -> None:
    lists.put(at(0), first=[[status, {"Retry-After": "0"}, "busy"]] * 2)
    assert numbers(lists.reader(retries=2).run()) == [0]
    lists.put(at(0), first=[[status, {"Retry-After": "0"}, "busy"]] * 2)
    reader = lists.reader(retries=1)
    plan = reader.plan()
    assert plan is not None
    with pytest.raises(TransientError, match=f"{status}"):
        reader.read(plan)


def test_retry_after_is_honored_up_to_one_minute(lists: Lists) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=4)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    for wait, least_s in (("1", 1), (soon, 1)):
        lists.put(at(0), first=[[429, {"Retry-After": wait}, ""]])
        begin = time.monotonic()
        assert numbers(lists.reader(retries=1).run()) == [0]
        assert time.monotonic() - begin >= least_s
    lists.put(at(0), first=[[503, {"Retry-After": "3600"}, ""]])
    reader = lists.reader(retries=5)
    plan = reader.plan()
    assert plan is not None
    with pytest.raises(TransientError, match="asks to wait 3600 s"):
        reader.read(plan)


def test_unreachable_silent_or_disconnecting_server_is_an_outage(lists: Lists) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        urls = [f"http://127.0.0.1:{silent.getsockname()[1]}/{{dataset}}", "http://127.0.0.1:1/{dataset}"]
        for url in (*urls, "http://no-such-host.invalid/{dataset}"):
            reader = lists.reader(url=url, timeout_s=0.3)
            plan = reader.plan()
            assert plan is not None
            with pytest.raises(TransientError, match="can't be reached"):
                reader.read(plan)


def _send_half_an_answer(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"data": {"items": []}}')


def test_truncated_answer_is_an_outage_even_if_it_could_be_parsed(lists: Lists) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_send_half_an_answer, args=(listening,), daemon=True).start()
        reader = lists.reader(url=f"http://127.0.0.1:{listening.getsockname()[1]}/{{dataset}}")
        plan = reader.plan()
        assert plan is not None
        with pytest.raises(TransientError, match="closed the connection"):
            reader.read(plan)


def test_secrets_come_from_files_and_are_sent_but_never_shown(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("hunter2-hunter2\n")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    source = lists.source(headers={"Authorization": f"Bearer ${{file:{tmp_path / 'secret'}}}"})
    source = pickle.loads(pickle.dumps(source))
    lists.put(at(0), header=["Authorization", "Bearer hunter2-hunter2"])
    assert numbers(Reader(source, lists.name).run()) == [0]
    lists.put(at(0), header=["Authorization", "another"])
    message = failure(Reader(source, lists.name))
    assert "who is ***?" in message
    assert "hunter2" not in message + repr(source) + source.model_dump_json() + repr(source.open().client)
    lists.put(at(0), header=["Authorization", "Basic cmVhZGVyOnDDpHNz"])
    assert numbers(lists.reader(username="reader", password="päss").run()) == [0]
    with pytest.raises(ValidationError, match="must name a secret's file by an absolute path"):
        lists.source(password="${file:secret}")
    (tmp_path / "secret").unlink()
    with pytest.raises(ConfigurationError, match="secret's file"):
        source.open()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "ftp://host/x"}, "must begin with"),
        ({"url": "https://u:hunter2@host/x"}, "must not contain a user"),
        ({"url": "https://host/x?token=hunter2"}, r"a query \(\?\)"),
        ({"url": "https://{dataset}.example/x"}, "must begin with"),
        ({"datasets": []}, "datasets"),
        ({"datasets": ["a", "a"]}, "must not be named twice"),
        ({"datasets": ["a", "b"], "url": "https://host/x"}, "must contain {dataset}"),
        ({"overrides": {"gone": {}}}, "overrides.gone must be the name of a dataset of the source"),
        ({"watermark": {**TIME, "lookback": None}}, "lookback"),
        ({"watermark": {**TIME, "unique": True}}, "unique must only be set with type: integer"),
        ({"watermark": {**NUMBER, "until": "u"}}, "must only be set with type: time"),
        ({"watermark": {**TEXT, "lookback": 1}}, "lookback must be 0 with type: text"),
        ({"paging": {"type": "guess"}}, "guess"),
        ({"timeout_s": 0}, "timeout_s"),
    ],
)
def test_invalid_rest_settings_are_rejected(lists: Lists, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        lists.source(**settings)
    assert "hunter2" not in str(raised.value)


def test_dataset_may_override_field_list_and_parameters(lists: Lists) -> None:
    lists.server.put(lists.name, rows=['{"meta": {"id": 1}, "n": 0}'], field="meta.id", is_number=True)
    watermark = {"field": "meta.id", "type": "integer", "since": "since", "lookback": 0, "unique": True}
    other = {"records": "", "watermark": watermark, "params": {"limit": 5}}
    source = lists.source("header", datasets=[lists.name, "other"], records="wrong", overrides={lists.name: other})
    assert numbers(Reader(source, lists.name).run()) == [0]
    assert lists.server.asked(lists.name)[0]["arguments"] == {"limit": "5"}
    assert source.fixed_settings()["url"].value == "/header/{dataset}"


def test_only_parameters_that_contain_the_dataset_are_pinned(lists: Lists) -> None:
    def pins(**params: str) -> dict[str, str]:
        return {name: pin.value for name, pin in lists.source(params=params).fixed_settings().items()}

    named = "params ({dataset})"
    assert pins(table="{dataset}", limit="5", of="x-{dataset}")[named] == "of=x-{dataset}&table={dataset}"
    assert pins(table="{dataset}", limit="9") == pins(table="{dataset}")
    assert named not in pins(limit="5")


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (Watermark({"rows": 5}, "at:time"), "not known how far it was read"),
        (Watermark({"": (5,), "rows": 5}, "at:time"), "not one of the watermark field"),
        (Watermark({"": "", "rows": 5}, "at:time"), "not one of the watermark field"),
        (Watermark({"": at(0, ".000000Z"), "rows": 5}, "id:time"), "not one of the watermark field"),
        (Watermark({"": at(0, ".000000Z"), "other": 5}, "at:time"), "not one of the watermark field"),
    ],
)
def test_stored_position_of_another_field_stops_its_dataset(lists: Lists, stored: Watermark, message: str) -> None:
    reader = lists.reader()
    reader.watermark = stored
    assert reader.plan() is None
    assert message in reader.problems[0]


def test_positions_that_an_operator_sets_are_validated(lists: Lists) -> None:
    def problems(positions: dict[str, Any], **settings: Any) -> list[str]:
        return list(lists.source(**settings).position_problems({lists.name: positions}))

    assert problems({"": at(0, ".000000Z"), "rows": 5}) == problems({"": at(0, ".000000Z")}) == []
    assert problems({"": (5,)}, watermark=NUMBER) == []
    assert "a list of one integer" in problems({"": 5}, watermark=NUMBER)[0]
    assert "not a value of at, which must be of type " in problems({"": "2024"})[0]
    assert "not a number of records" in problems({"": at(0, ".000000Z"), "rows": -1})[0]
    assert "no position of ''" in problems({"rows": 1})[0]
    assert "not one of its partitions" in problems({"": at(0, ".000000Z"), "0": 1})[0]
    assert "not a dataset" in next(iter(lists.source().position_problems({"gone": {}})))
    reader = lists.reader()
    lists.put(at(0), at(1))
    reader.watermark = Watermark({"": at(1, ".000000Z")})
    assert numbers(reader.run()) == [1]


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 6), max_size=8), st.integers(1, 4)), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 2),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_after_each_run_exactly_the_records_below_the_watermark_were_read(
    lists: Lists, runs: list[tuple[list[int], int]], exclusive: bool, lookback: int
) -> None:
    """Values only grow, as their server guarantees; ties and page sizes vary."""
    reader = lists.reader("page", watermark={**NUMBER, "lookback": lookback})
    values: list[int] = []
    for steps, limit in runs:
        newest = values[-1] if values else 0
        values += sorted(newest + step for step in steps)
        lists.put(*values, is_number=True, limit=limit, exclusive=exclusive)
        reader.run()
        read = [json.loads(row["value"])["at"] for row in reader.rows]
        end = values[-1] - lookback if values else 0
        assert read == [value for value in values if value < end]


def test_stopped_datasets_and_datasets_of_other_tasks_are_not_planned(lists: Lists) -> None:
    assert list(lists.source().plan(lambda urn: False, SourceState())) == []
    assert len(list(lists.source().plan(bool, SourceState({lists.name: DatasetState(lists.name)})))) == 1


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the back-off deterministic, so that its length is known."""
    monkeypatch.setattr("distcommit.sources.rest.client.random.uniform", lambda low, high: low / 10)
