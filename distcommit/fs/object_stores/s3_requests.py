"""Requests to an S3 bucket, with `boto3`.

Endpoint, region and credentials come from the environment, as for every AWS client: AWS_ENDPOINT_URL, AWS_REGION,
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, profiles, or the machine's role. The client may repeat a request whose
response was lost.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from distcommit.core.interfaces.file_system import FolderEntry
from distcommit.fs.object_stores.object_operations import CALLS, ObjectHead

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


class S3Requests:
    """Requests to a bucket, one per method unless documented. Picklable; connects at the first request.

    Errors are OSError: FileNotFoundError for a missing object or upload, FileExistsError if a condition failed, EAGAIN
    for concurrent requests for the key, EBUSY for a busy store. EIO also means that the response was lost.

    Args:
        bucket: name of the bucket.
        options: boto3's options for endpoint, region and credentials, instead of the environment's.

    Raises:
        ConfigurationError: at a request, if the bucket or credentials are missing.
    """

    def __init__(self, bucket: str, options: Sequence[tuple[str, str]] = ()) -> None:
        self._bucket, self._options = bucket, tuple(options)
        self._connected: Any = None
        self._connecting = threading.Lock()

    def __reduce__(self) -> tuple[type[S3Requests], tuple[str, Sequence[tuple[str, str]]]]:
        return S3Requests, (self._bucket, self._options)

    def put(self, key: str, data: bytes, metadata: Mapping[str, str], *, if_absent: bool) -> str:
        """Write an object and return its ETag. With `if_absent`, raise FileExistsError if the key is taken. If another
        request for the key conflicts, try up to ten times."""
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        for remaining in reversed(range(_CONFLICTS)):
            try:
                with self._errors_of(key):
                    response = self._client.put_object(
                        Bucket=self._bucket,
                        Key=key,
                        Body=data,
                        ContentMD5=_md5(data),
                        Metadata=dict(metadata),
                        **condition,
                    )
                break
            except BlockingIOError:
                if not remaining:
                    raise
        return _plain(response["ETag"])

    def get(self, key: str) -> tuple[ObjectHead, bytes]:
        with self._errors_of(key):
            response = self._client.get_object(Bucket=self._bucket, Key=key)
            return _head(response), response["Body"].read()

    def read_chunks(self, key: str) -> Iterator[bytes]:
        with self._errors_of(key):
            response = self._client.get_object(Bucket=self._bucket, Key=key)
            yield from response["Body"].iter_chunks(_PIECE_BYTES)

    def head(self, key: str) -> ObjectHead | None:
        try:
            with self._errors_of(key):
                return _head(self._client.head_object(Bucket=self._bucket, Key=key))
        except FileNotFoundError:
            return None

    def list_folder(self, prefix: str) -> list[FolderEntry]:
        """Return names directly below a prefix, by a request for each thousand names."""
        with self._errors_of(prefix):
            pages = list(
                self._client.get_paginator("list_objects_v2").paginate(
                    Bucket=self._bucket, Prefix=prefix, Delimiter="/"
                )
            )
        cut = len(prefix)
        entries = [
            FolderEntry(folder["Prefix"][cut:-1], True) for page in pages for folder in page.get("CommonPrefixes", ())
        ]
        entries += [FolderEntry(item["Key"][cut:], False) for page in pages for item in page.get("Contents", ())]
        return [entry for entry in entries if entry.name]  # some programs put an empty object in place of a folder

    def is_folder(self, prefix: str) -> bool:
        with self._errors_of(prefix):
            return bool(self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, MaxKeys=1).get("Contents"))

    def delete(self, key: str) -> None:
        with self._errors_of(key):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def begin_upload(self, key: str, metadata: Mapping[str, str]) -> str:
        """Begin an upload and return its id. It is invisible until `complete_upload`."""
        with self._errors_of(key):
            upload_id = self._client.create_multipart_upload(Bucket=self._bucket, Key=key, Metadata=dict(metadata))
        return str(upload_id["UploadId"])

    def upload_part(self, key: str, upload_id: str, number: int, data: bytes) -> str:
        """Send a part, numbered from 1, and return its ETag. All parts except the last must have at least 5 MiB."""
        with self._errors_of(key):
            response = self._client.upload_part(
                Bucket=self._bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=data, ContentMD5=_md5(data)
            )
        return _plain(response["ETag"])

    def uploaded_parts(self, key: str, upload_id: str) -> list[str]:
        """Return the parts' ETags, by a request for each thousand. Raises FileNotFoundError if the upload has ended."""
        with self._errors_of(key):
            pages = self._client.get_paginator("list_parts").paginate(Bucket=self._bucket, Key=key, UploadId=upload_id)
            return [_plain(part["ETag"]) for page in pages for part in page.get("Parts", ())]

    def complete_upload(self, key: str, upload_id: str, etags: Sequence[str]) -> None:
        """Publish an upload. Raises FileExistsError if the key is taken, FileNotFoundError if the upload has ended."""
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
        """Abort an upload. Raises FileNotFoundError if it has ended."""
        with self._errors_of(key):
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)

    def uploads_to(self, key: str) -> list[str]:
        """Return the ids of unfinished uploads to the key."""
        with self._errors_of(key):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=key)
            uploads = [upload for page in pages for upload in page.get("Uploads", ())]
            return [upload["UploadId"] for upload in uploads if upload["Key"] == key]

    @property
    def _client(self) -> Any:
        with self._connecting:
            if self._connected is None:
                self._connected = boto3.session.Session().client(
                    "s3",
                    **{"region_name": os.environ.get("AWS_REGION"), **dict(self._options)},
                    config=Config(
                        max_pool_connections=CALLS,
                        retries={"mode": "standard"},  # AWS_MAX_ATTEMPTS attempts; 3 by default
                        request_checksum_calculation="when_required",  # bodies carry an MD5, which all stores support
                        response_checksum_validation="when_required",
                    ),
                )
            return self._connected

    @contextmanager
    def _errors_of(self, key: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            answer = error.response
            code, status = answer["Error"]["Code"], str(answer["ResponseMetadata"].get("HTTPStatusCode", ""))
            if code == "NoSuchBucket":
                raise self._unusable("the bucket does not exist", str(error)) from None
            number = _ERRORS.get(code, _ERRORS.get(status, errno.EIO))
            raise OSError(number, f"{answer['Error'].get('Message', '')} ({code})", key) from None
        except (NoCredentialsError, PartialCredentialsError, ProfileNotFound, ParamValidationError) as error:
            raise self._unusable("the bucket can't be accessed", str(error)) from None
        except BotoCoreError as error:  # no connection or no response
            raise OSError(errno.EIO, f"{type(error).__name__}: {error}", key) from None

    def _unusable(self, problem: str, actual: str) -> ConfigurationError:
        return ConfigurationError(
            problem,
            id="STORAGE_ADDRESS_INVALID",
            bucket=self._bucket,
            endpoint=os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS",
            found=actual.replace("\n", " "),
            todo="create the bucket, or correct paths, AWS_ENDPOINT_URL, AWS_REGION or the credentials, on the driver"
            " and the executors",
        )


def _head(answer: Mapping[str, Any]) -> ObjectHead:
    return ObjectHead(answer["ContentLength"], _plain(answer["ETag"]), answer["Metadata"])


def _plain(etag: str) -> str:
    return etag.strip('"')


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
