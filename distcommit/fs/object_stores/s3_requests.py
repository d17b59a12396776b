"""Requests to one bucket of S3 or of a store that speaks its protocol, by the package `boto3`.

Endpoint, region and credentials come from the environment, as for every AWS client: AWS_ENDPOINT_URL, AWS_REGION,
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, profiles, or the role of the machine.

The client may send a request again when it hears no answer. Bodies go with their MD5, which every such store checks.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)

from distcommit.core.errors import ConfigurationError
from distcommit.core.ports import FolderEntry

CALLS = 32
"""Requests that are worth having in flight at once; as many connections are kept."""

_CONFLICTS = 10
_PIECE_BYTES = 1 << 20
_ERRORS = {
    "400": errno.EINVAL,
    "403": errno.EACCES,
    "404": errno.ENOENT,
    "409": errno.EAGAIN,
    "412": errno.EEXIST,
    "429": errno.EBUSY,
    "503": errno.EBUSY,
    "KeyTooLongError": errno.ENAMETOOLONG,
    "QuotaExceeded": errno.EDQUOT,
    "RequestTimeout": errno.ETIMEDOUT,
}


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """What is known of an object beside its bytes. `metadata` is what its writer gave it, `etag` is without quotes."""

    size_bytes: int
    etag: str
    metadata: Mapping[str, str]


class S3Requests:
    """The requests. One method, one request, unless it says otherwise. Connects at the first one; picklable.

    Errors are OSError: FileNotFoundError for what is not there, FileExistsError where a condition did not hold, EAGAIN
    where others are at the same key, EBUSY where the store is busy; EIO also means that the answer was not heard.

    Args:
        bucket: its name.
        options: endpoint, region and credentials as boto3's client takes them, in place of the environment's.

    Raises:
        ConfigurationError: at any request, if there is no such bucket, or there are no credentials.
    """

    def __init__(self, bucket: str, options: Sequence[tuple[str, str]] = ()) -> None:
        self._bucket, self._options = bucket, tuple(options)
        self._connected: Any = None
        self._connecting = threading.Lock()

    def __reduce__(self) -> tuple[type[S3Requests], tuple[str, Sequence[tuple[str, str]]]]:
        return S3Requests, (self._bucket, self._options)

    def put(self, key: str, data: bytes, metadata: Mapping[str, str], *, if_absent: bool) -> str:
        """Writes an object and returns its ETag. Asks again while others are at the key."""
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        for left in reversed(range(_CONFLICTS)):
            try:
                with self._errors_of(key):
                    done = self._client.put_object(
                        Bucket=self._bucket,
                        Key=key,
                        Body=data,
                        ContentMD5=_md5(data),
                        Metadata=dict(metadata),
                        **condition,
                    )
                break
            except BlockingIOError:
                if not left:
                    raise
        return _plain(done["ETag"])

    def get(self, key: str) -> tuple[ObjectHead, bytes]:
        """An object, whole."""
        with self._errors_of(key):
            found = self._client.get_object(Bucket=self._bucket, Key=key)
            return _head(found), found["Body"].read()

    def pieces(self, key: str) -> Iterator[bytes]:
        """The object's bytes, in order."""
        with self._errors_of(key):
            found = self._client.get_object(Bucket=self._bucket, Key=key)
            yield from found["Body"].iter_chunks(_PIECE_BYTES)

    def head(self, key: str) -> ObjectHead | None:
        """What is at the key; None if nothing is."""
        try:
            with self._errors_of(key):
                return _head(self._client.head_object(Bucket=self._bucket, Key=key))
        except FileNotFoundError:
            return None

    def list_folder(self, prefix: str) -> list[FolderEntry]:
        """What follows the prefix in keys, up to the next slash. One request for each thousand names."""
        with self._errors_of(prefix):
            pages = list(
                self._client.get_paginator("list_objects_v2").paginate(
                    Bucket=self._bucket, Prefix=prefix, Delimiter="/"
                )
            )
        cut = len(prefix)
        found = [
            FolderEntry(folder["Prefix"][cut:-1], True) for page in pages for folder in page.get("CommonPrefixes", ())
        ]
        found += [FolderEntry(each["Key"][cut:], False) for page in pages for each in page.get("Contents", ())]
        return [entry for entry in found if entry.name]  # some programs put an empty object in place of a folder

    def is_folder(self, prefix: str) -> bool:
        """Whether any key begins with the prefix."""
        with self._errors_of(prefix):
            return bool(self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, MaxKeys=1).get("Contents"))

    def delete(self, key: str) -> None:
        """Nothing happens if it is not there."""
        with self._errors_of(key):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def begin_upload(self, key: str, metadata: Mapping[str, str]) -> str:
        """Begins an object that nobody sees before `complete_upload`, and returns the upload's id."""
        with self._errors_of(key):
            upload_id = self._client.create_multipart_upload(Bucket=self._bucket, Key=key, Metadata=dict(metadata))
        return str(upload_id["UploadId"])

    def upload_part(self, key: str, upload_id: str, number: int, data: bytes) -> str:
        """Sends the part of that number (from 1) and returns its ETag. All but the last have 5 MiB or more."""
        with self._errors_of(key):
            done = self._client.upload_part(
                Bucket=self._bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=data, ContentMD5=_md5(data)
            )
        return _plain(done["ETag"])

    def uploaded_parts(self, key: str, upload_id: str) -> list[str]:
        """ETags of an upload's parts, in order. FileNotFoundError if it is not there: completed, or given up. One
        request for each thousand parts."""
        with self._errors_of(key):
            pages = self._client.get_paginator("list_parts").paginate(Bucket=self._bucket, Key=key, UploadId=upload_id)
            return [_plain(part["ETag"]) for page in pages for part in page.get("Parts", ())]

    def complete_upload(self, key: str, upload_id: str, etags: Sequence[str]) -> None:
        """Makes the object visible, whole, if nothing is at the key. FileNotFoundError as `uploaded_parts`."""
        parts = [{"PartNumber": number, "ETag": f'"{etag}"'} for number, etag in enumerate(etags, 1)]
        with self._errors_of(key):
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                MultipartUpload={"Parts": parts},
                IfNoneMatch="*",
            )

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Gives an upload up, with its parts. FileNotFoundError as `uploaded_parts`."""
        with self._errors_of(key):
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)

    def uploads_to(self, key: str) -> list[str]:
        """Ids of uploads to that key that are neither completed nor given up."""
        with self._errors_of(key):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=key)
            return [each["UploadId"] for page in pages for each in page.get("Uploads", ()) if each["Key"] == key]

    @property
    def _client(self) -> Any:
        with self._connecting:
            if self._connected is None:
                self._connected = boto3.session.Session().client(
                    "s3",
                    **{"region_name": os.environ.get("AWS_REGION"), **dict(self._options)},
                    config=Config(
                        max_pool_connections=CALLS,
                        retries={"mode": "standard"},  # AWS_MAX_ATTEMPTS says how often: else 3 times
                        request_checksum_calculation="when_required",  # bodies have their MD5, which all stores know
                        response_checksum_validation="when_required",
                    ),
                )
            return self._connected

    @contextmanager
    def _errors_of(self, key: str) -> Iterator[None]:
        """Gives the client's errors their errno."""
        try:
            yield
        except ClientError as error:
            answer = error.response
            code, status = answer["Error"]["Code"], str(answer["ResponseMetadata"].get("HTTPStatusCode", ""))
            if code == "NoSuchBucket":
                raise self._unusable("there is no such bucket", str(error)) from None
            number = _ERRORS.get(code, _ERRORS.get(status, errno.EIO))
            raise OSError(number, f"{answer['Error'].get('Message', '')} ({code})", key) from None
        except (NoCredentialsError, PartialCredentialsError, ProfileNotFound, ParamValidationError) as error:
            raise self._unusable("this bucket can't be asked", str(error)) from None
        except BotoCoreError as error:  # no connection, or no answer
            raise OSError(errno.EIO, f"{type(error).__name__}: {error}", key) from None

    def _unusable(self, what: str, found: str) -> ConfigurationError:
        return ConfigurationError(
            what,
            bucket=self._bucket,
            endpoint=os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS",
            found=found.replace("\n", " "),
            todo="make the bucket, or correct paths, AWS_ENDPOINT_URL, AWS_REGION or the credentials, also where the"
            " executors run",
        )


def _head(answer: Mapping[str, Any]) -> ObjectHead:
    return ObjectHead(answer["ContentLength"], _plain(answer["ETag"]), answer["Metadata"])


def _plain(etag: str) -> str:
    return etag.strip('"')


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
