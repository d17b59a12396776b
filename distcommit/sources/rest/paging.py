"""Paging by a link, a cursor or a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import urljoin, urlsplit

from pydantic import BaseModel, ConfigDict, Field

from distcommit.core.support.settings_model import SettingError, SettingsModel, rule
from distcommit.sources.rest.responses import Answer


class Request(BaseModel):
    """A request by HTTP GET.

    Attributes:
        url: URL without parameters, or a link of the server with its own.
        params: parameters that are added to the URL, by name.
    """

    model_config = ConfigDict(frozen=True)

    url: str
    params: dict[str, str] = {}


class _Paging(SettingsModel):
    def first(self, request: Request) -> Request:
        return request

    def following(self, request: Request, answer: Answer) -> Request | None:
        """Return the next request; None after the last page.

        Raises:
            ValueError: if the next page must not be requested.
        """
        raise NotImplementedError

    def behind_last(self, request: Request) -> Request | None:
        """Return the request for the page after an empty last page, by which the caller checks that this page is empty,
        too. None skips the check."""
        return None

    def total(self, answer: Answer) -> int | None:
        """Return the total that the server reports; None if paging does not use it.

        Raises:
            ValueError: if the total is missing.
        """
        return None

    def required_records(self, answer: Answer, *, is_last: bool) -> int | None:
        """Return the number of records that a page must have if it has another number, otherwise None. `is_last`:
        whether no records follow."""
        return None

    def by_total(self, request: Request, answer: Answer) -> int | None:
        """Return the number of records that the page must have by the total; None if it is unknown."""
        return None


class LinkPaging(_Paging):
    """Paging by the next page's URL in an answer: at `path`, or `rel="next"` of the header `Link`.

    The URL must be of the same server, because credentials are sent with the request.

    Attributes:
        type: `link`.
        path: dotted path of the link in an answer; empty for the header `Link`.
    """

    type: Literal["link"]
    path: str = ""

    def following(self, request: Request, answer: Answer) -> Request | None:
        link = answer.text_at(self.path) if self.path else answer.next_link
        if not link:
            return None
        url = urljoin(request.url, link)
        if _server(url) != _server(request.url):
            raise ValueError(f"a link must not lead to another server: {url.partition('?')[0]:.200}")
        return Request(url=url)


class CursorPaging(_Paging):
    """Paging by a cursor: the value at `path` of an answer is the parameter `param` of the next request.

    Attributes:
        type: `cursor`.
        path: dotted path of the cursor in an answer.
        param: name of the parameter.
    """

    type: Literal["cursor"]
    path: str = Field(min_length=1)
    param: str = Field(min_length=1)

    def following(self, request: Request, answer: Answer) -> Request | None:
        cursor = answer.text_at(self.path)
        return _with(request, self.param, cursor) if cursor else None


class PageNumberPaging(_Paging):
    """Paging by numbers, from `first_page` on in steps of `step`: page numbers, or offsets of as many records.

    Attributes:
        type: `page`.
        param: parameter of the number.
        first_page: the first number.
        step: added to the number for each page. More than 1 means offsets: each page but the last must then have that
            many records, because others would be skipped.
        until: the last page. `empty`: the first page without records; the page behind it is requested too, and must be
            empty. `short_page`: the first page with fewer than `size` records. `total`: the page that reaches the total
            at `path`; pages before it may be empty, and with `size` or offsets all others must be full. `link`: the
            first page that names no next one at `path`, or without a path in its header `Link`, by a text, a number or
            `true`.
        path: for `total` and `link`, a dotted path. A total counts what `param` counts (pages, or with offsets
            records); with `size` it counts records.
        size: for `short_page` and `total`, the number of records of a full page. With offsets it is `step`.
    """

    type: Literal["page"]
    param: str = Field(min_length=1)
    first_page: int = Field(default=1, ge=0)
    step: int = Field(default=1, ge=1)
    until: Literal["empty", "short_page", "total", "link"] = "empty"
    path: str = ""
    size: int | None = Field(default=None, ge=1)

    @rule
    def _has_path_and_size(self) -> Iterator[SettingError]:
        if self.until == "total" and not self.path:
            yield SettingError("must be set with until: total", "path")
        if self.until in ("empty", "short_page") and self.path:
            yield SettingError("must only be set with until: total or until: link", "path")
        if self.until in ("empty", "link") and self.size is not None:
            yield SettingError("must only be set with until: short_page or until: total", "size")
        elif self.step > 1 and self.size not in (None, self.step):
            yield SettingError("must not be set with offsets, whose size is step", "size")
        if self.until == "short_page" and self._size is None:
            yield SettingError("must be set with until: short_page", "size")

    def first(self, request: Request) -> Request:
        return _with(request, self.param, str(self.first_page))

    def following(self, request: Request, answer: Answer) -> Request | None:
        behind = _with(request, self.param, str(int(request.params[self.param]) + self.step))
        return behind if self._is_followed(int(behind.params[self.param]), answer) else None

    def behind_last(self, request: Request) -> Request | None:
        if self.until != "empty":
            return None
        return _with(request, self.param, str(int(request.params[self.param]) + self.step))

    def total(self, answer: Answer) -> int | None:
        return answer.count_at(self.path) if self.until == "total" else None

    def required_records(self, answer: Answer, *, is_last: bool) -> int | None:
        """Return `step` if a page of offsets, except the last, has another number of records and `until` is not
        `total`. Return `size` if a page has more records. Otherwise return None."""
        count = len(answer.records)
        if self.step > 1 and not is_last and count != self.step and self.until != "total":
            return self.step
        return self._size if self._size is not None and count > self._size else None

    def by_total(self, request: Request, answer: Answer) -> int | None:
        """Return `size`, or the remaining number for the page that reaches the total; None if it is unknown."""
        if self.until != "total" or self._size is None:
            return None
        begin = (int(request.params[self.param]) - self.first_page) * (self._size if self.step == 1 else 1)
        return min(self._size, answer.count_at(self.path) - begin)

    def _is_followed(self, number: int, answer: Answer) -> bool:
        if self.until == "total":
            total = answer.count_at(self.path)
            count = total if self.size is None or self.step > 1 else -(-total // self.size)
            return number < self.first_page + count
        if self.until == "link":
            return bool(answer.text_at(self.path, or_true=True) if self.path else answer.next_link)
        return (
            bool(answer.records) if self._size is None or self.until == "empty" else len(answer.records) >= self._size
        )

    @property
    def _size(self) -> int | None:
        return self.step if self.step > 1 else self.size


class NoPaging(_Paging):
    """No paging: one answer has all records.

    Attributes:
        type: `none`.
    """

    type: Literal["none"]

    def following(self, request: Request, answer: Answer) -> Request | None:
        return None


Paging = Annotated[LinkPaging | CursorPaging | PageNumberPaging | NoPaging, Field(discriminator="type")]


def _with(request: Request, name: str, value: str) -> Request:
    params: Mapping[str, str] = {**request.params, name: value}
    return Request(url=request.url, params=dict(params))


def _server(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
