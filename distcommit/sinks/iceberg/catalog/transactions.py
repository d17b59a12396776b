"""Atomic changes of several tables by one request: `POST /v1/{prefix}/transactions/commit`."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS, VIEW_ENDPOINTS, Endpoint, RestCatalog
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    UnauthorizedError,
)
from pyiceberg.table import CommitTableRequest, TableIdentifier
from requests import HTTPError

from distcommit.sinks.iceberg.catalog.tables import Change


class NoSuchCallError(Exception):
    """Error of a catalog that does not support the request."""


_ENDPOINT = Endpoint.from_string("POST /v1/{prefix}/transactions/commit")
_ERRORS = {
    404: NoSuchTableError,
    405: NoSuchCallError,
    409: CommitFailedException,
    413: BadRequestError,
    422: BadRequestError,
    500: CommitStateUnknownException,
    502: CommitStateUnknownException,
    504: CommitStateUnknownException,
}


def has_transactions(catalog: RestCatalog) -> bool:
    """Return whether the catalog lists the endpoint `transactions/commit`, or no endpoints at all."""
    endpoints = catalog._supported_endpoints
    return _ENDPOINT in endpoints or endpoints - VIEW_ENDPOINTS == DEFAULT_ENDPOINTS


def commit_together(catalog: RestCatalog, changes: Sequence[Change]) -> None:
    """Apply all changes, or none if one of these errors is raised. After any other exception the outcome is unknown.

    Raises:
        CommitFailedException: a table has changed meanwhile.
        NoSuchTableError: a table is gone.
        BadRequestError: the catalog rejects the request.
        ForbiddenError: a change is forbidden.
        NoSuchCallError: the catalog does not support the request.
    """
    body = f'{{"table-changes":[{",".join(map(_as_json, changes))}]}}'.encode()
    try:
        _post(catalog, body)
    except (AuthorizationExpiredError, UnauthorizedError):
        catalog._refresh_token()
        _post(catalog, body)


def _as_json(change: Change) -> str:
    *namespace, name = change.table.name()
    identifier = TableIdentifier.model_validate({"namespace": namespace, "name": name})
    request = CommitTableRequest(identifier=identifier, requirements=change.requirements, updates=change.updates)
    return request.model_dump_json()


def _post(catalog: RestCatalog, body: bytes) -> None:
    answer = catalog._session.post(catalog.url("transactions/commit"), data=body)
    try:
        answer.raise_for_status()
    except HTTPError as error:
        _handle_non_200_response(error, _ERRORS)
