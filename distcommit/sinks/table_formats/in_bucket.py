"""Data files in buckets that speak S3, by this package's own client: it can take away what a killed writer had begun to
send, which no other client here does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from distcommit.core.errors import ConfigurationError

if TYPE_CHECKING:
    from distcommit.fs.object_stores.s3_requests import S3Requests


def requests_to(bucket: str, extra: str, options: Mapping[str, str] | None = None) -> S3Requests:
    """Requests to a bucket, one client in each process.

    Args:
        bucket: its name.
        extra: what pip installs of this package for those who ask.
        options: endpoint, region and credentials as boto3's client takes them; those that are not there come from the
            environment.

    Raises:
        ConfigurationError: if the client is not installed.
    """
    asked = tuple(sorted((options or {}).items()))
    return _requests_to(bucket, extra, asked, os.getpid(), os.environ.get("AWS_ENDPOINT_URL", ""))


@lru_cache(maxsize=8)
def _requests_to(
    bucket: str, extra: str, options: tuple[tuple[str, str], ...], process: int, endpoint: str
) -> S3Requests:
    try:
        from distcommit.fs.object_stores.s3_requests import S3Requests  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "tables' data files on S3 need its client",
            found=str(error),
            todo=f"pip install 'distcommit[{extra},s3]', also where the executors run",
        ) from error
    return S3Requests(bucket, options)


def take_away(requests: S3Requests, key: str) -> None:
    """Deletes a data file, and what its writer has left of it if it died; nothing happens if there is none."""
    from distcommit.fs.object_stores.s3_stream import abandoned  # noqa: PLC0415 - an extra

    abandoned(requests, key)
