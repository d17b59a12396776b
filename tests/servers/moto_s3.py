"""moto's server as the S3 server of tests, closer to S3 in two ways.

It handles one request at a time, so that a condition and its write are one step. A missing upload is answered with
NoSuchUpload, not with a server error.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.exceptions import NoSuchUpload
from moto.s3.models import S3Backend
from werkzeug.serving import run_simple


def _checking(act: Callable[..., Any]) -> Callable[..., Any]:
    def checked(self: S3Backend, bucket_name: str, multipart_id: str, *rest: Any) -> Any:
        if multipart_id not in self.get_bucket(bucket_name).multiparts:
            raise NoSuchUpload(upload_id=multipart_id)
        return act(self, bucket_name, multipart_id, *rest)

    return checked


def serve(port: int) -> None:
    """Serve until killed."""
    S3Backend.complete_multipart_upload = _checking(S3Backend.complete_multipart_upload)  # type: ignore[method-assign]
    S3Backend.upload_part = _checking(S3Backend.upload_part)  # type: ignore[method-assign]
    moto, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def application(environ: Any, start_response: Any) -> Any:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))  # a client may never send it
        environ["wsgi.input"] = io.BytesIO(body)
        with one_at_a_time:
            return list(moto(environ, start_response))

    run_simple("127.0.0.1", port, application, threaded=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
