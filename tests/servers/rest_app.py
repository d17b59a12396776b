"""`python rest_app.py PORT`: lists of records over HTTP, with each way of paging and its possible faults.

`PUT /lists/NAME` takes the definition of a list, as JSON:

    rows      the JSON of each record, as text, in the order of the answers
    field     the field that `since` and `until` refer to; `is_number` whether it holds numbers
    limit     how many records an answer has
    exclusive whether `since` excludes its own value
    first     answers that are sent before all others: [status, headers, body]
    header    a header and its value, without which every request is refused
    delay_s   the duration of each answer

`GET /lists/NAME/asked` returns the requests for it, with their headers. `GET /PAGING/NAME` returns a page.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any

import flask
from werkzeug.serving import make_server

app = flask.Flask(__name__)
lists: dict[str, dict[str, Any]] = {}
asked: dict[str, list[dict[str, Any]]] = {}
lock = threading.Lock()


@app.get("/")
def alive() -> str:
    return "alive"


@app.put("/lists/<name>")
def put(name: str) -> str:
    defaults = {"rows": [], "field": "at", "is_number": False, "limit": 3, "exclusive": False, "delay_s": 0}
    with lock:
        lists[name] = {**defaults, "first": [], "header": None, **flask.request.get_json()}
        asked[name] = []
    return ""


@app.get("/lists/<name>/asked")
def was_asked(name: str) -> flask.Response:
    return flask.jsonify(asked[name])


@app.get("/<paging>/<name>")
def get(paging: str, name: str) -> flask.Response:
    definition, arguments = lists.get(name), flask.request.args
    if definition is None:
        return flask.Response("no such list", 404)
    with lock:
        url = flask.request.full_path.rstrip("?")
        asked[name].append({"url": url, "headers": dict(flask.request.headers), "arguments": dict(arguments)})
        first = definition["first"].pop(0) if definition["first"] else None
    time.sleep(definition["delay_s"])
    if definition["header"] and flask.request.headers.get(definition["header"][0]) != definition["header"][1]:
        return flask.Response(f"who is {flask.request.headers.get(definition['header'][0])}?", 401)
    if first is not None:
        return flask.Response(first[2], first[0], first[1])
    rows = [row for row in definition["rows"] if _is_within(row, definition, arguments)]
    return _page(paging, name, rows, definition["limit"], arguments)


def _page(paging: str, name: str, rows: list[str], limit: int, arguments: Any) -> flask.Response:
    begin = int(arguments.get("cursor", arguments.get("offset", (int(arguments.get("page", 1)) - 1) * limit)))
    page, end = rows[begin : begin + limit], begin + limit
    is_last = end >= len(rows)
    others = "&".join(f"{key}={value}" for key, value in arguments.items() if key != "cursor")
    link = f"/{paging}/{name}?{others}&cursor={end}"
    if paging == "header":
        headers = {} if is_last else {"Link": f'<{link}>; rel="next", </>; rel="first"'}
        return flask.Response(f"[{','.join(page)}]", 200, headers)
    following: Any = None if is_last else {"body": link, "cursor": end}.get(paging)
    text = f'{{"data": {{"items": [{",".join(page)}]}}, "next": {json.dumps(following)}}}'
    return flask.Response(text, 200, {"Content-Type": "application/json"})


def _is_within(row: str, definition: dict[str, Any], arguments: Any) -> bool:
    bounds = {key: _read(arguments[key], definition) for key in ("since", "until") if key in arguments}
    if not bounds:
        return True
    value: Any = json.loads(row)
    for name in definition["field"].split("."):
        value = value[name]
    value = _read(value, definition)
    above = (
        "since" not in bounds or value > bounds["since"] or (value == bounds["since"] and not definition["exclusive"])
    )
    return above and ("until" not in bounds or value < bounds["until"])


def _read(value: Any, definition: dict[str, Any]) -> Any:
    if definition["is_number"]:
        return int(value)
    try:
        time_ = datetime.fromisoformat(value)
    except ValueError:
        return value
    return time_ if time_.tzinfo else time_.replace(tzinfo=UTC)


if __name__ == "__main__":
    make_server("127.0.0.1", int(sys.argv[1]), app, threaded=True).serve_forever()
