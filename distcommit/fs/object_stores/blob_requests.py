"""Requests to an Azure container or a Google bucket, with `obstore`.

Credentials come from the environment, as `obstore` documents them. Azure: AZURE_STORAGE_ACCOUNT_NAME with
AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, a service principal, a federated token's file, or the machine's
managed identity. Google: the key of a service account, application default credentials, or the machine's identity.
"""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.exceptions import PermissionDeniedError as NoPermissionError
from obstore.exceptions import UnauthenticatedError as NoIdentityError
from obstore.store import from_url

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FolderEntry
from distcommit.fs.object_stores.object_operations import PART_BYTES, ObjectHead

_PIECE_BYTES = 1 << 20
_RETRIES = 4
_LEAST_PAUSE = timedelta(milliseconds=500)
"""Minimum pause before a retry. Google rejects a second write of one name within a second."""
_REPEATS = 3
"""How often a put or copy is sent while its response is lost. `obstore` repeats only other requests."""
_STATUS = re.compile(r"status code: (\d{3})|code: (\d{3})\)")
_XML = re.compile(r"<Code>(.*?)</Code>\s*<Message>(.*?)(?:\n|</Message>)", re.DOTALL)
_ERRORS = {
    "400": errno.EINVAL,
    "401": errno.EACCES,
    "403": errno.EACCES,
    "409": errno.EAGAIN,
    "412": errno.EEXIST,
    "429": errno.EBUSY,
    "503": errno.EBUSY,
}
_PREFIX = "distcommit_"


class BlobRequests:
    """Requests to a container. Picklable; connects at the first request.

    Errors are OSError: FileNotFoundError for a missing object, FileExistsError if a condition failed, EBUSY for a busy
    store. EIO also means that the response was lost.

    Args:
        url: scheme and authority, such as az://CONTAINER or gs://BUCKET.

    Raises:
        ConfigurationError: at a request, if the container, account or key file is missing.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connected: Any = None
        self._connecting = threading.Lock()
        self._is_google = url.startswith("gs://")
        self._container = "bucket" if self._is_google else "container"

    def __reduce__(self) -> tuple[type[BlobRequests], tuple[str]]:
        return BlobRequests, (self._url,)

    def put(
        self, key: str, data: bytes, metadata: Mapping[str, str], *, replaced: ObjectHead | None = None
    ) -> ObjectHead | None:
        """Write an object if the key is free, or has the object `replaced`. Otherwise return None. The metadata must be
        unique, because it identifies this put after a lost response."""
        mode: Any = {"e_tag": replaced.etag, "version": replaced.generation} if replaced else "create"
        try:
            put = self._repeat(
                key,
                lambda: obstore.put(self._store, key, data, attributes=dict(metadata), mode=mode, use_multipart=False),
            )
        except FileExistsError:
            head = self.head(key)
            return head if head is not None and head.metadata == metadata else None
        return ObjectHead(len(data), str(put["e_tag"]), metadata, put["version"] or "")

    def get(self, key: str) -> tuple[ObjectHead, bytes]:
        with self.errors_of(key):
            answer = obstore.get(self._store, key)
            return _head(answer), bytes(answer.bytes())

    def read_chunks(self, key: str) -> Iterator[bytes]:
        with self.errors_of(key):
            for chunk in obstore.get(self._store, key).stream(min_chunk_size=_PIECE_BYTES):
                yield bytes(chunk)

    def head(self, key: str) -> ObjectHead | None:
        try:
            with self.errors_of(key):
                return _head(obstore.get(self._store, key, options={"head": True}))
        except FileNotFoundError:
            return None

    def list_folder(self, prefix: str) -> list[FolderEntry]:
        """Return names directly below a prefix, by a request for each page of the listing."""
        folders, files = self.list_details(prefix)
        cut = len(prefix)
        return [FolderEntry(folder[cut:], True) for folder in folders] + [
            FolderEntry(file["path"][cut:], False) for file in files
        ]

    def list_details(self, prefix: str) -> tuple[list[str], list[dict[str, Any]]]:
        with self.errors_of(prefix):
            listing = obstore.list_with_delimiter(self._store, prefix)
        # Some programs put an empty object in place of a folder.
        return list(listing["common_prefixes"]), [dict(file) for file in listing["objects"] if file["path"] != prefix]

    def details(self, key: str) -> dict[str, Any]:
        """Return an object's details. Raises FileNotFoundError if it does not exist."""
        with self.errors_of(key):
            return dict(obstore.head(self._store, key))

    def is_folder(self, prefix: str) -> bool:
        with self.errors_of(prefix):
            return any(obstore.list(self._store, prefix, chunk_size=1))

    def copy(self, source: str, target: str) -> None:
        """Copy an object with its metadata to a free key. Azure may complete the copy later."""
        self._repeat(target, lambda: obstore.copy(self._store, source, target, overwrite=False))

    def delete(self, key: str) -> bool:
        try:
            with self.errors_of(key):
                obstore.delete(self._store, key)
        except FileNotFoundError:
            return False
        return True

    def open_parts(self, key: str, metadata: Mapping[str, str]) -> Any:
        """Return a writer that sends parts. Closing it replaces any object with this key."""
        with self.errors_of(key):
            return obstore.open_writer(
                self._store, key, attributes=dict(metadata), buffer_size=PART_BYTES, max_concurrency=1
            )

    def open_reader(self, key: str) -> Any:
        with self.errors_of(key):
            return obstore.open_reader(self._store, key)

    @contextmanager
    def errors_of(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, BaseError) as error:
            raise self._translated(error, key) from None

    def _repeat(self, key: str, send: Any) -> Any:
        for remaining in reversed(range(_REPEATS)):
            try:
                with self.errors_of(key):
                    return send()
            except OSError as error:
                if error.errno != errno.EIO or not remaining:
                    raise
        raise AssertionError("unreachable")

    @property
    def _store(self) -> Any:
        with self._connecting:
            if self._connected is None:
                self._connected = from_url(
                    self._url,
                    client_options={"allow_http": True, "timeout": "300s", "read_timeout": "30s"},
                    retry_config={
                        "max_retries": _RETRIES,
                        "retry_timeout": timedelta(seconds=60),
                        "backoff": {"init_backoff": _LEAST_PAUSE},
                    },
                )
            return self._connected

    def _translated(self, error: Exception, key: str) -> Exception:
        text = str(error).partition("\n\nDebug source")[0]
        code, message = _described(text)
        if code in {"ContainerNotFound", "NoSuchBucket"}:
            return self._unusable(f"the {self._container} does not exist", message)
        if "must be specified" in text or "service account file" in text:
            return self._unusable(f"the {self._container} can't be accessed", message)
        described = f"{message} ({code})" if code else message
        match error:
            case FileNotFoundError():
                return FileNotFoundError(errno.ENOENT, described, key)
            case AlreadyExistsError() | PreconditionError():
                return FileExistsError(errno.EEXIST, described, key)
            case NoPermissionError() | NoIdentityError():
                return PermissionError(errno.EACCES, described, key)
        status = _STATUS.search(text)
        return OSError(_ERRORS.get(next(filter(None, status.groups())) if status else "", errno.EIO), described, key)

    def _unusable(self, problem: str, actual: str) -> ConfigurationError:
        variables = "GOOGLE_BASE_URL" if self._is_google else "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ENDPOINT"
        return ConfigurationError(
            problem,
            id="STORAGE_ADDRESS_INVALID",
            bucket=self._url,
            found=actual,
            todo=f"create the {self._container}, or correct paths, {variables} or the credentials, on the driver and"
            " the executors",
        )


def _head(answer: Any) -> ObjectHead:
    metadata = {name: value for name, value in answer.attributes.items() if name.startswith(_PREFIX)}
    return ObjectHead(answer.meta["size"], answer.meta["e_tag"] or "", metadata, answer.meta["version"] or "")


def _described(text: str) -> tuple[str, str]:
    """Return code and message of a response, without URL queries, which may contain signatures."""
    xml = _XML.search(text)
    if xml is not None:
        return xml[1], xml[2]
    return "", re.sub(r"\?\S*", "", " ".join(text.split()))
