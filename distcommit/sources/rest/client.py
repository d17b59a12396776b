"""HTTP client with retries."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import requests
from requests.auth import HTTPBasicAuth
from urllib3.exceptions import HTTPError, InvalidHeader
from urllib3.util import Retry

from distcommit.core.errors import DistcommitError, SourceError, TransientError, plain_text
from distcommit.fs.response_time_limit import ResponseTimeError, call_within
from distcommit.sources.rest.paging import Request

_MAX_BODY_BYTES = 256 << 20
_MOST_WAIT_S = 60.0
_BLOCK_BYTES = 64 << 10
_TOO_EARLY = {408, 425, 429}
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Reply:
    """A response of the server.

    Attributes:
        body: the decompressed body.
        next_link: URL of `rel="next"` in the header `Link`; empty if there is none.
    """

    body: bytes
    next_link: str


@dataclass(frozen=True)
class RestClient:
    """HTTP client that connects at the first request and reuses its connections.

    Attributes:
        headers: headers of each request.
        basic: user and password; None for no authentication.
        timeout_s: seconds to wait for a connection, and for each byte.
        answer_s: seconds that a whole response may take.
        retries: number of retries if a server can't be reached, is busy or fails.
        secrets: texts that are masked in all messages.
    """

    headers: Mapping[str, str] = field(repr=False)
    basic: tuple[str, str] | None = field(repr=False)
    timeout_s: float
    answer_s: float
    retries: int
    secrets: Sequence[str] = field(default=(), repr=False)

    def get(self, request: Request, dataset: str) -> Reply:
        """Send a GET request and return the answer.

        Raises:
            TransientError: if the server is still unavailable, busy or failing, or asks to wait for more than a minute.
            SourceError: if the request is rejected or redirected, or the answer is too large, too slow or compressed
                more than once.
        """
        for tried in range(self.retries + 1):
            wait_s = min(0.5 * 2**tried, _MOST_WAIT_S) * random.uniform(0.5, 1)
            try:
                return call_within(self.answer_s, lambda: self._request(request, dataset))
            except ResponseTimeError as error:
                raise self._too_slow(request, dataset, error) from None
            except _RetryLaterError as error:
                asked_s = error.wait_s
                wait_s = wait_s if asked_s is None else asked_s
                if tried == self.retries or wait_s > _MOST_WAIT_S:
                    raise self._unavailable(request, dataset, error) from None
            time.sleep(wait_s)
        raise AssertionError("the last retry returns or raises")

    def close(self) -> None:
        self._session.close()

    @cached_property
    def _session(self) -> requests.Session:
        session = requests.Session()
        session.headers.update({"Accept": "application/json", **self.headers})
        if self.basic is not None:
            user, password = self.basic
            session.auth = HTTPBasicAuth(user.encode(), password.encode())
        else:
            session.auth = _without_netrc  # requests would prefer .netrc's entry for the server to `headers`
        return session

    def _request(self, request: Request, dataset: str) -> Reply:
        try:
            with self._session.get(
                request.url, params=request.params, timeout=self.timeout_s, stream=True, allow_redirects=False
            ) as response:
                if response.status_code == 200:
                    return Reply(self._body(response, dataset), response.links.get("next", {}).get("url", ""))
                status = f"{response.status_code} {response.reason}"
                if response.status_code in _TOO_EARLY or response.status_code >= 500:
                    raise _RetryLaterError(status, _retry_after_s(response))
                detail = response.raw.read(_SHOWN, decode_content=True).decode(errors="replace")
                raise self._refused(request, dataset, response.status_code, f"{status}: {detail}" if detail else status)
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader, UnicodeError) as error:
            raise self._refused(request, dataset, 0, str(error)) from None
        except (requests.RequestException, HTTPError) as error:
            raise _RetryLaterError(f"{type(error).__name__}: {error}", None) from None

    def _body(self, response: requests.Response, dataset: str) -> bytes:
        body, packed = bytearray(), response.headers.get("Content-Encoding", "")
        if "," in packed:
            raise SourceError(
                "an answer is compressed more than once",
                id="REST_ANSWER_UNUSABLE",
                dataset=dataset,
                expected="at most one Content-Encoding",
                found=packed[:_SHOWN],
                todo="have the server compress its answers once, or not at all",
            )
        for block in response.iter_content(_BLOCK_BYTES):
            body += block
            if len(body) > _MAX_BODY_BYTES:
                raise SourceError(
                    "an answer is too large",
                    id="REST_ANSWER_UNUSABLE",
                    dataset=dataset,
                    expected=f"at most {_MAX_BODY_BYTES:,} bytes",
                    found="more",
                    todo="ask for smaller pages by source.params",
                )
        return bytes(body)

    def _too_slow(self, request: Request, dataset: str, error: ResponseTimeError) -> SourceError:
        return SourceError(
            "the server takes too long for an answer",
            id="REST_ANSWER_UNUSABLE",
            dataset=dataset,
            url=self._shown(request.url.partition("?")[0]),
            expected=f"a whole answer within source.response_timeout_s: {self.answer_s:g} s",
            found=str(error),
            todo="ask for smaller pages by source.params, or set a longer source.response_timeout_s",
        )

    def _refused(self, request: Request, dataset: str, status: int, actual: str) -> SourceError:
        todo = _TODO.get(status, "correct source.url, source.params or the names of its parameters")
        if 300 <= status < 400:
            todo = "set source.url to where it sends: credentials are not taken elsewhere"
        url = self._shown(request.url.partition("?")[0])
        return SourceError(
            "the server rejected the request",
            id="SOURCE_REQUEST_REJECTED",
            dataset=dataset,
            url=url,
            found=self._shown(actual),
            todo=todo,
        )

    def _unavailable(self, request: Request, dataset: str, error: _RetryLaterError) -> DistcommitError:
        wait_note = f", and asks to wait {error.wait_s:.0f} s" if error.wait_s is not None else ""
        return TransientError(
            "the server can't be reached, is busy, or closed the connection",
            id="SOURCE_SERVER_UNAVAILABLE",
            dataset=dataset,
            url=self._shown(request.url.partition("?")[0]),
            found=self._shown(f"{error}{wait_note}"),
            todo="check the server, then run again; nothing was lost",
        )

    def _shown(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return plain_text(text, 1000)


class _RetryLaterError(Exception):
    def __init__(self, text: str, wait_s: float | None) -> None:
        super().__init__(text)
        self.wait_s = wait_s


_TODO = {
    401: "correct source.headers, or source.username and source.password",
    403: "let this user read it, or correct source.headers, or source.username and source.password",
    404: "correct source.url or the dataset's name, or take it out of source.datasets",
}


def _retry_after_s(response: requests.Response) -> float | None:
    try:
        return Retry().get_retry_after(response.raw)
    except InvalidHeader:
        return None


def _without_netrc(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
