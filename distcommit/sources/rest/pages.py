"""The pages of one read, each checked against earlier ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from distcommit.core.errors import SourceError
from distcommit.core.watermark import Position
from distcommit.sources.rest.paging import Paging, Request
from distcommit.sources.rest.responses import Answer
from distcommit.sources.rest.watermark_field import WatermarkField

if TYPE_CHECKING:
    from distcommit.sources.rest.client import RestClient

_MOST_EMPTY_PAGES = 1000


@dataclass(frozen=True, slots=True)
class RecordList:
    """Settings for requests of a dataset's records.

    Attributes:
        request: request of the first page, without parameters of watermark and paging.
        records: dotted path of the list of records in an answer; empty if the answer is the list.
        watermark: the watermark field, with its request parameters.
        paging: how to find the next page.
    """

    request: Request
    records: str
    watermark: WatermarkField
    paging: Paging


class Pages:
    def __init__(self, client: RestClient, of: RecordList, dataset: str) -> None:
        self._client, self._list, self._dataset = client, of, dataset

    def read(self, params: dict[str, str]) -> Iterator[Answer]:
        """Request the list with these parameters, and yield its pages.

        Raises:
            TransientError: if the server can't be reached, is busy or fails.
            SourceError: if a page can't be read or contradicts an earlier one, or if the pages would never end.
        """
        base, paging = self._list.request, self._list.paging
        request: Request | None = paging.first(Request(url=base.url, params={**base.params, **params}))
        visited, empty, short, total = set[bytes](), 0, Answer(b"", []), 0
        before = short
        while request is not None:
            visited.add(_digest(request))
            answer, following = self._answer(request)
            empty = 0 if answer.records else empty + 1
            if empty > _MOST_EMPTY_PAGES:
                raise self._endless(f"{empty} answers without records")
            if answer.records and answer.body == before.body:
                raise self._endless("the same answer twice")
            if following is not None and _digest(following) in visited:
                raise self._endless("an answer that leads back to an earlier one")
            if answer.records and short.records:
                raise self._uneven(short, is_last=False)
            short = answer if paging.required_records(answer, is_last=False) is not None else Answer(b"", [])
            if paging.required_records(answer, is_last=True) is not None:
                raise self._uneven(answer, is_last=True)
            total = self._total(answer, total)
            self._require_full(answer, paging.by_total(request, answer))
            yield answer
            if following is None and not answer.records:
                self._require_empty(paging.behind_last(request))
            request, before = following, answer

    def _answer(self, request: Request) -> tuple[Answer, Request | None]:
        reply = self._client.get(request, self._dataset)
        try:
            answer = Answer.parse(reply.body, self._list.records, reply.next_link)
            return answer, self._list.paging.following(request, answer)
        except ValueError as error:
            raise self._unreadable(f"{error}; it begins with {reply.body[:60]!r}") from None

    def _require_empty(self, request: Request | None) -> None:
        if request is None or not self._answer(request)[0].records:
            return
        raise SourceError(
            "a page without records is not the last one",
            id="REST_PAGING_INVALID",
            dataset=self._dataset,
            expected="none behind it, as source.paging.until is empty",
            found="records in the page behind it",
            todo="set source.paging.until to what ends the server's list: total, link or short_page;"
            " nothing of it is published",
        )

    def _require_full(self, answer: Answer, required: int | None) -> None:
        if required is None or not answer.records or len(answer.records) >= required:
            return
        raise SourceError(
            "a page has fewer records than the server's total requires, so that others would be skipped",
            id="REST_PAGING_INVALID",
            dataset=self._dataset,
            expected=f"{required}, or none",
            found=str(len(answer.records)),
            todo="set source.paging.size (of offsets: step), and the server's parameter for the size of a page, to what"
            " the server gives at most; if its pages vary in size, use links or a cursor as source.paging."
            " Nothing of it is published",
        )

    def _total(self, answer: Answer, before: int) -> int:
        total = self._list.paging.total(answer)
        if total is not None and total < before:
            raise SourceError(
                "the server's total shrank between two pages: records were deleted, and unread ones moved up",
                id="SOURCE_READ_INCOMPLETE",
                dataset=self._dataset,
                expected=f"at least {before}, as in the page before",
                found=str(total),
                todo="run again; nothing of it is published",
            )
        return total or before

    def _endless(self, actual: str) -> SourceError:
        return SourceError(
            "the answers would never end",
            id="REST_PAGING_INVALID",
            dataset=self._dataset,
            expected="answers that each lead to a new one, and a last one that leads to none",
            found=actual,
            todo="correct source.paging; nothing of it is published",
        )

    def _uneven(self, answer: Answer, *, is_last: bool) -> SourceError:
        required = self._list.paging.required_records(answer, is_last=is_last)
        todo = "the server's parameter for the size of a page, to what the server gives at most; nothing is published"
        if is_last:
            return SourceError(
                "a page has more records than source.paging.size or the step of offsets",
                id="REST_PAGING_INVALID",
                dataset=self._dataset,
                expected=f"at most {required}",
                found=str(len(answer.records)),
                todo=f"set source.paging.size (of offsets: step), and {todo}",
            )
        return SourceError(
            "an answer that is not the last one does not have source.paging.step records",
            id="REST_PAGING_INVALID",
            dataset=self._dataset,
            expected=f"source.paging.step: {required}",
            found=str(len(answer.records)),
            todo=f"set step, and {todo}",
        )

    def _unreadable(self, actual: str) -> SourceError:
        of = self._list
        return SourceError(
            "an answer can't be read",
            id="REST_PAGING_INVALID",
            dataset=self._dataset,
            expected=f"JSON with a list of records {f'at {of.records}' if of.records else ''}".strip(),
            found=actual,
            todo="correct source.url, source.records or source.paging",
        )


class RepeatDetector:
    """Detector of records that were in an earlier page. They can only have the newest value.

    Args:
        is_unique: whether values are unique. Then repeated records are dropped; otherwise they are errors.
    """

    def __init__(self, dataset: str, *, is_unique: bool) -> None:
        self._dataset, self._is_unique = dataset, is_unique
        self._newest: Position | None = None
        self._records = set[bytes]()

    def dropped(self, records: list[bytes], positions: list[Position]) -> tuple[list[bytes], list[Position]]:
        """Return a page's records and positions without repeated ones.

        Raises:
            SourceError: if values are not unique and a record repeats, or are unique and two different ones share one.
        """
        kept_records, kept_positions, digests = list[bytes](), list[Position](), list[bytes]()
        for record, position in zip(records, positions, strict=True):
            digest = blake2b(record, digest_size=16).digest()
            if self._is_repeated(digest, position):
                continue
            kept_records.append(record)
            kept_positions.append(position)
            digests.append(digest)
            if self._is_unique:
                self._newest, self._records = position, {digest}
        if not self._is_unique and kept_positions:
            newest = kept_positions[-1]
            before = self._records if newest == self._newest else set[bytes]()
            of_newest = (digest for digest, at in zip(digests, kept_positions, strict=True) if at == newest)
            self._newest, self._records = newest, before.union(of_newest)
        return kept_records, kept_positions

    def _is_repeated(self, digest: bytes, position: Position) -> bool:
        if position != self._newest:
            return False
        if digest in self._records:
            if self._is_unique:
                return True
            raise SourceError(
                "a page repeats a record of the page before, which would be published twice",
                id="REST_PAGING_INVALID",
                dataset=self._dataset,
                expected="pages that do not overlap, and no two records that are equal byte by byte",
                found=f"a record of {position!r} twice",
                todo="use links or a cursor as source.paging, or request larger pages by source.params;"
                " nothing of it is published",
            )
        if self._is_unique:
            raise SourceError(
                "the server returned two different records of one value",
                id="SOURCE_READ_INCOMPLETE",
                dataset=self._dataset,
                expected="unique values, as source.watermark.unique declares",
                found=repr(position),
                todo="set source.watermark.unique to false if values are not unique; if a record was changed while"
                " pages were read, run again; nothing of it is published",
            )
        return False


def _digest(request: Request) -> bytes:
    return blake2b(request.model_dump_json().encode(), digest_size=16).digest()
