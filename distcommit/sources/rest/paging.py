"""How one answer leads to the next: by a link, a cursor or a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urljoin, urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from distcommit.sources.rest.answers import Answer


class Request(BaseModel):
    """What is asked for: a URL, and parameters that are added to it."""

    model_config = ConfigDict(frozen=True)

    url: str
    params: dict[str, str] = {}


class _Paging(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def first(self, request: Request) -> Request:
        """The request for the first answer."""
        return request

    def following(self, request: Request, answer: Answer) -> Request | None:
        """The request for what comes after this answer; None if nothing does.

        Raises:
            ValueError: if the answer leads nowhere that may be gone to.
        """
        raise NotImplementedError

    def behind_last(self, request: Request) -> Request | None:
        """The request for what must be empty, where an answer without records ended the list; None if there is none."""
        return None

    def total(self, answer: Answer) -> int | None:
        """How much the list has by this answer; None if answers do not name it.

        Raises:
            ValueError: if this one should.
        """
        return None

    def required_records(self, answer: Answer, *, is_last: bool) -> int | None:
        """How many records the answer must have; None if their number is right. `is_last`: no records follow it."""
        return None

    def by_total(self, request: Request, answer: Answer) -> int | None:
        """Return how many records the answer must have by the total in it, unless it has none; None if none says so."""
        return None


class LinkPaging(_Paging):
    """The next answer's URL stands in the answer, at `path`, or with no path in its header `Link`, as rel="next".

    It has to be of the server that gave it, as credentials go there with the request.

    Attributes:
        type: `link`.
        path: where the link is in an answer, names with dots between; empty: the header `Link`.
    """

    type: Literal["link"]
    path: str = ""

    def following(self, request: Request, answer: Answer) -> Request | None:
        """Nothing comes after an answer without a link, or with null or an empty text for it."""
        link = answer.text_at(self.path) if self.path else answer.next_link
        if not link:
            return None
        url = urljoin(request.url, link)
        if _server(url) != _server(request.url):
            raise ValueError(f"a link to another server: {url.partition('?')[0]:.200}")
        return Request(url=url)


class CursorPaging(_Paging):
    """What stands in the answer at `path` is the parameter `param` of the next request.

    Attributes:
        type: `cursor`.
        path: where it is in an answer, names with dots between.
        param: the parameter.
    """

    type: Literal["cursor"]
    path: str = Field(min_length=1)
    param: str = Field(min_length=1)

    def following(self, request: Request, answer: Answer) -> Request | None:
        """Nothing comes after an answer without a cursor, or with null or an empty text for it."""
        cursor = answer.text_at(self.path)
        return _with(request, self.param, cursor) if cursor else None


class PageNumberPaging(_Paging):
    """Answers are numbered, from `first_page` on in steps of `step`: pages, or offsets with as many records as a step.

    Attributes:
        type: `page`.
        param: the parameter that the number is sent as.
        first_page: the first number.
        step: what is added to it each time. With more than 1 it is an offset, and each page but the last has to have as
            many records: else some would be passed over.
        until: which page is the last one. `empty`: the first without records; the page behind it is requested too, and
            must have none either. `short_page`: the first with fewer than `size` records. `total`: the page that
            reaches the total at `path`, so that pages before it may be empty; with `size` or offsets all others have to
            be full. `link`: the first that does not name
            another one at `path`, or with no path in its header `Link`, by a text, a number or `true`.
        path: of `total` and `link`, names with dots between. A total counts what `param` counts (pages, or with offsets
            records); with `size` it counts records.
        size: of `short_page` and `total`, how many records a full page has. Of offsets it is `step`.
    """

    type: Literal["page"]
    param: str = Field(min_length=1)
    first_page: int = Field(default=1, ge=0)
    step: int = Field(default=1, ge=1)
    until: Literal["empty", "short_page", "total", "link"] = "empty"
    path: str = ""
    size: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> PageNumberPaging:
        if self.until == "total" and not self.path:
            raise ValueError("path must be set with until: total")
        if self.until in ("empty", "short_page") and self.path:
            raise ValueError("path is of until: total and until: link")
        if self.until in ("empty", "link") and self.size is not None:
            raise ValueError("size is of until: short_page and until: total")
        if self.step > 1 and self.size not in (None, self.step):
            raise ValueError("size must be left out with offsets: it is their step")
        if self.until == "short_page" and self._size is None:
            raise ValueError("size must be set with until: short_page")
        return self

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
        """Of offsets as many as the step, and of pages that end with a short one at most `size`."""
        count = len(answer.records)
        if self.step > 1 and not is_last and count != self.step and self.until != "total":
            return self.step
        return self._size if self._size is not None and count > self._size else None

    def by_total(self, request: Request, answer: Answer) -> int | None:
        """Return `size`, and of the page that reaches the total what is left."""
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
    """One answer has all there is.

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
