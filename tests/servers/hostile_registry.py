"""A schema registry that serves any text as a schema, unchecked, as hostile producers may register it."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class HostileRegistry:
    """The schemas, by id and by subject.

    Attributes:
        url: the address of Confluent's API.
        asked: the requested paths, in order.
    """

    url: str = ""
    asked: list[str] = field(default_factory=list)
    _schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    _subjects: dict[str, int] = field(default_factory=dict)

    def add(self, subject: str, text: str, kind: str, references: Sequence[tuple[str, str]] = ()) -> int:
        """Register a schema with references, which are pairs of a name and a text, and return its id."""
        named = []
        for number, (name, referenced) in enumerate(references):
            own = f"{subject}-reference-{number}"
            self.add(own, referenced, kind)
            named.append({"name": name, "subject": own, "version": 1})
        schema_id = len(self._schemas) + 1
        self._schemas[schema_id] = {"schema": text, "schemaType": kind, "references": named}
        self._subjects[subject] = schema_id
        return schema_id

    def answer(self, path: str) -> tuple[int, Any]:
        """Return the status and the body for a path."""
        self.asked.append(path)
        match path.partition("?")[0].strip("/").split("/"):
            case ["subjects"]:
                return 200, sorted(self._subjects)
            case ["schemas", "ids", number] if int(number) in self._schemas:
                return 200, self._schemas[int(number)]
            case ["subjects", subject, "versions", _] if subject in self._subjects:
                schema_id = self._subjects[subject]
                return 200, {"subject": subject, "version": 1, "id": schema_id, **self._schemas[schema_id]}
        return 404, {"error_code": 40403, "message": "not found"}


@contextlib.contextmanager
def hostile_registry() -> Iterator[HostileRegistry]:
    """Serve a registry for the duration of the block."""
    registry = HostileRegistry()
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry))
    registry.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def _handler(registry: HostileRegistry) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, answer = registry.answer(self.path)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
