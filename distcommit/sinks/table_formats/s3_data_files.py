"""Data files in S3 buckets, with a client that can delete parts of unfinished uploads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from distcommit.core.errors import ConfigurationError
from distcommit.core.support.install_command import install_command

if TYPE_CHECKING:
    from distcommit.fs.object_stores.s3_requests import S3Requests


def requests_to(bucket: str, extra: str, options: Mapping[str, str] | None = None) -> S3Requests:
    """Return a bucket's client, of which a process keeps eight. `options` are boto3's; missing ones come from the
    environment. Raises ConfigurationError if the `extra` is missing."""
    sorted_options = tuple(sorted((options or {}).items()))
    return _requests_to(bucket, extra, sorted_options, os.getpid(), os.environ.get("AWS_ENDPOINT_URL", ""))


@lru_cache(maxsize=8)
def _requests_to(
    bucket: str, extra: str, options: tuple[tuple[str, str], ...], process: int, endpoint: str
) -> S3Requests:
    try:
        from distcommit.fs.object_stores.s3_requests import S3Requests  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "the S3 client is not installed, which writes data files of tables to S3",
            id="PACKAGE_MISSING",
            found=str(error),
            todo=f"run `{install_command(extra, 's3')}` on the driver and on all executors",
        ) from error
    return S3Requests(bucket, options)


def delete_data_file(requests: S3Requests, key: str) -> None:
    from distcommit.fs.object_stores.s3_stream import discard_stream  # noqa: PLC0415 - an extra

    discard_stream(requests, key)
