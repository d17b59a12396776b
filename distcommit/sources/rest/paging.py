"""How one answer leads to the next: by a link, a cursor or a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urljoin, urlsplit

from pydantic import BaseModel, ConfigDict, Field

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

    def is_whole(self, answer: Answer) -> bool:
        """Whether another answer with records may come after this one, as far as their number tells."""
        return True


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

    The first answer without records is the last one.

    Attributes:
        type: `page`.
        param: the parameter that the number is sent as.
        first_page: the first number.
        step: what is added to it each time. With more than 1 it is an offset, and each page but the last has to have as
            many records: else some would be passed over.
    """

    type: Literal["page"]
    param: str = Field(min_length=1)
    first_page: int = Field(default=1, ge=0)
    step: int = Field(default=1, ge=1)

    def first(self, request: Request) -> Request:
        return _with(request, self.param, str(self.first_page))

    def following(self, request: Request, answer: Answer) -> Request | None:
        return _with(request, self.param, str(int(request.params[self.param]) + self.step)) if answer.records else None

    def is_whole(self, answer: Answer) -> bool:
        """Of offsets: whether it has as many records as the next offset is behind."""
        return self.step == 1 or len(answer.records) == self.step


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
