"""Client of a schema registry with Confluent's REST API."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, field_validator

from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.core.support.install_command import install_command
from distcommit.core.support.settings_model import SettingError, SettingsModel, checks
from distcommit.fs.response_time_limit import ResponseTimeError, call_within
from distcommit.fs.secret_files import check_secret_files, with_secret_files
from distcommit.schemas.schema_size_limits import MAX_SCHEMA_BYTES, SchemaTooLargeError, UnusableSchemaError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

_CLIENT_DEFAULTS: dict[str, Any] = {"timeout": 30}
_MAX_ANSWER_S = 120.0
_MAX_BODY_BYTES = 16 << 20
_NUMBERS = frozenset({"timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms"})
_REFUSED = (401, 403)
_TOPIC = "{topic}"
MAX_REFERENCES = 500
"""Maximum number of schemas that one schema refers to, directly or through others."""


class UnknownSchemaError(LookupError):
    """The registry does not have a schema."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    schema_id: int
    """Id of the schema in the registry."""
    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    """The registered text. For Protobuf, the text of a `.proto` file or a descriptor in Base64."""
    references: tuple[tuple[str, str], ...]
    """Name and text of each referenced schema, after those that it refers to."""


def check_size(registered: RegisteredSchema) -> None:
    """Raise SchemaTooLargeError if a schema has too many references, or is too large together with them."""
    if len(registered.references) > MAX_REFERENCES:
        count = len(registered.references)
        raise SchemaTooLargeError(f"it refers to {count} schemas, and at most {MAX_REFERENCES} are allowed")
    size = sum(
        len(text.encode("utf-8", "surrogatepass")) for text in (registered.text, *(t for _, t in registered.references))
    )
    if size > MAX_SCHEMA_BYTES:
        raise SchemaTooLargeError(f"its text has {size} bytes, and at most {MAX_SCHEMA_BYTES} are allowed")


class RegistrySettings(SettingsModel):
    """Address of a schema registry, and settings of its client.

    Attributes:
        url: one URL, or several separated by commas. If one does not answer, the next is asked.
        client: settings of confluent-kafka's client: `basic.auth.user.info` (USER:PASSWORD), `ssl.ca.location`,
            `ssl.certificate.location`, `ssl.key.location`, `timeout` (seconds), `max.retries`, ...; values may be
            `${file:PATH}`.
    """

    url: str
    client: dict[str, Annotated[str | float, Field(union_mode="left_to_right")]] = Field(
        default_factory=dict, repr=False
    )

    @checks("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if not re.fullmatch(r"https?://[^\s@]+", url):
            raise SettingError(
                "must begin with http:// or https:// and contain no user", remedy="set registry.client for credentials"
            )
        return url

    _check_files = field_validator("client")(check_secret_files)


class PinnedSchema(SettingsModel):
    """A fixed version of a subject.

    Attributes:
        subject: name of the subject, in which `{topic}` is replaced by each dataset's own topic. The default is
            `{topic}-value`, or `{topic}-key` if `column` is `key`.
        version: version of the subject.
    """

    subject: str | None = Field(default=None, min_length=1)
    version: int = Field(ge=1)

    @property
    def is_of_topic(self) -> bool:
        """Whether each topic has a subject of its own: no subject is set, or it contains `{topic}`."""
        return self.subject is None or _TOPIC in self.subject

    def subject_of(self, topic: str, column: str) -> str:
        return default_subject(topic, column) if self.subject is None else self.subject.replace(_TOPIC, topic)


def default_subject(topic: str, column: str) -> str:
    return f"{topic}-{'key' if column == 'key' else 'value'}"


def registry_client_class() -> type[SchemaRegistryClient]:
    """Return the client's class; raises ConfigurationError without the extra `registry`."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "the schema registry's client is not installed",
            id="PACKAGE_MISSING",
            found=str(error),
            todo=f"run `{install_command('registry')}` on the driver and on all executors",
        ) from error
    return SchemaRegistryClient


class _TooLargeError(Exception):
    """A response is larger than any schema."""


def _read_bounded(response: Any) -> None:
    """Read a body before the client, which has no limit; raises _TooLargeError above `_MAX_BODY_BYTES`."""
    body = bytearray()
    for block in response.iter_bytes():
        body += block
        if len(body) > _MAX_BODY_BYTES:
            response.close()
            raise _TooLargeError(f"an answer of more than {_MAX_BODY_BYTES:,} bytes")
    response._content = bytes(body)


class Registry:
    """Client of a schema registry, which caches answers but not failures.

    Args:
        todo: remedy in errors.
        answer_s: maximum seconds of a request, including the client's retries.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        todo: str = "correct the converter's registry",
        answer_s: float = _MAX_ANSWER_S,
    ) -> None:
        self._settings, self._todo, self._answer_s = settings, todo, answer_s
        self._has_schemas = False

    @cached_property
    def _client(self) -> SchemaRegistryClient:
        client_class = registry_client_class()
        client = self._settings.client
        supplied = {key: with_secret_files(value) if isinstance(value, str) else value for key, value in client.items()}
        try:
            typed = {key: float(value) if key in _NUMBERS else value for key, value in supplied.items()}
            registry = client_class({**_CLIENT_DEFAULTS, **typed, "url": self._settings.url})
        except (ValueError, TypeError, OSError) as error:
            raise ConfigurationError(
                "the schema registry's client rejects its settings",
                id="REGISTRY_SETTINGS_REJECTED",
                registry=self._settings.url,
                found=self._masked(f"{type(error).__name__}: {error}", supplied),
                todo=f"{self._todo}.client",
            ) from None

        registry._rest_client.session.event_hooks = {"response": [_read_bounded]}
        return registry

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with an id.

        Raises:
            UnknownSchemaError: if the registry does not have it.
            UnusableSchemaError: if it refers to too many schemas.
            ConfigurationError: if the registry rejects this client.
            TransientError: if the registry does not answer after the client's own retries, or has no schema at all.
        """
        return self._registered(
            schema_id, self._request(lambda client: client.get_schema(schema_id), f"id {schema_id}")
        )

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return a version of a subject; raises UnknownSchemaError and the errors of `schema`."""
        registered = self._request(
            lambda client: client.get_version(subject, version), f"version {version} of subject {subject}"
        )
        return self._registered(int(registered.schema_id), registered.schema)

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest version of a subject; raises UnknownSchemaError and the errors of `schema`."""
        registered = self._request(lambda client: client.get_latest_version(subject), f"subject {subject}")
        return self._registered(int(registered.schema_id), registered.schema)

    def close(self) -> None:
        """Close connections until the next request."""
        client = self.__dict__.pop("_client", None)
        if client is not None:
            client.close()

    def _registered(self, schema_id: int, schema: Schema) -> RegisteredSchema:
        references: dict[str, str] = {}
        self._refer(schema, references, ())
        kind = schema.schema_type or "AVRO"
        return RegisteredSchema(schema_id, kind, schema.schema_str or "", tuple(references.items()))

    def _refer(self, schema: Schema, results: dict[str, str], above: tuple[tuple[str, int], ...]) -> None:
        for reference in schema.references or []:
            key = (str(reference.subject), int(reference.version or 0))
            if reference.name in results or key in above:
                continue
            if len(results) + len(above) >= MAX_REFERENCES:
                raise UnusableSchemaError(f"it refers to more than {MAX_REFERENCES} schemas, which is the limit")
            text = f"referenced version {key[1]} of subject {key[0]}"
            registered = self._request(lambda client, key=key: client.get_version(*key), text)
            self._refer(registered.schema, results, (*above, key))
            results[str(reference.name)] = registered.schema.schema_str or ""

    def _request(self, question: Any, subject: str) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError  # noqa: PLC0415 - an extra

        client = self._client
        try:
            return call_within(self._answer_s, lambda: question(client))
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                self._require_schemas(subject)
                raise UnknownSchemaError(f"the registry does not have {subject}") from None
            if error.http_status_code in _REFUSED:
                raise ConfigurationError(
                    "the schema registry rejects this client",
                    id="REGISTRY_SETTINGS_REJECTED",
                    registry=self._settings.url,
                    asked=subject,
                    expected="valid credentials with the right to read schemas",
                    found=f"HTTP status {error.http_status_code}",
                    todo=f"{self._todo}.client (basic.auth.user.info)",
                ) from None
            raise self._unavailable(subject, str(error)) from None
        except (ConfigurationError, TransientError):
            raise
        except (ResponseTimeError, _TooLargeError) as error:
            raise self._unavailable(subject, str(error)) from None
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise self._unavailable(
                subject, f"an answer that is not a schema registry's ({type(error).__name__})"
            ) from None
        except Exception as error:  # noqa: BLE001 - httpx's, whose module has another name in each version of the client
            raise self._unavailable(subject, f"{type(error).__name__}: {error}") from None

    def _require_schemas(self, subject: str) -> None:
        """Raise TransientError if the registry is empty, which proves nothing about a record."""
        if self._has_schemas:
            return
        try:
            self._has_schemas = bool(self._client.get_subjects())
        except Exception:  # noqa: BLE001 - the client may lack the right to list subjects
            return
        if not self._has_schemas:
            raise TransientError(
                "the schema registry is empty",
                id="REGISTRY_UNAVAILABLE",
                registry=self._settings.url,
                asked=subject,
                expected="the schemas of the producers",
                found="no subjects",
                todo=f"restore its schemas; if the producers use another registry, {self._todo}",
            )

    def _unavailable(self, subject: str, actual: str) -> TransientError:
        return TransientError(
            "the schema registry does not answer",
            id="REGISTRY_UNAVAILABLE",
            registry=self._settings.url,
            asked=subject,
            expected="an answer, after the client's own retries",
            found=self._masked(actual, self._settings.client),
            todo=f"check that it runs and can be reached; else {self._todo}",
        )

    @staticmethod
    def _masked(text: str, client: Any) -> str:
        for value in sorted((str(value) for value in client.values()), key=len, reverse=True):
            text = text.replace(value, "***") if len(value) > 3 else text
        return text
