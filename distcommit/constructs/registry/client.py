"""A schema registry that speaks Confluent's REST API, asked by confluent-kafka's client."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, field_validator

from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.formats.schema_bounds import MAX_SCHEMA_BYTES, SchemaTooLargeError, UnusableSchemaError
from distcommit.fs.answer_time import AnswerTimeError, within
from distcommit.fs.secret_files import SECRET_FILE, with_secret_files

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

_CLIENT_DEFAULTS: dict[str, Any] = {"timeout": 30}
_MOST_ANSWER_S = 120.0
_MOST_BODY_BYTES = 16 << 20
_NUMBERS = frozenset({"timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms"})
_REFUSED = (401, 403)
_TOPIC = "{topic}"
MAX_REFERENCES = 500
"""Schemas that one schema refers to, directly or by others."""


class UnknownSchemaError(LookupError):
    """The registry has no such schema."""


@dataclass(frozen=True, slots=True)
class FoundSchema:
    """A schema as the registry has it.

    Attributes:
        schema_id: its id.
        kind: AVRO, PROTOBUF or JSON.
        text: the schema itself; of Protobuf, what was registered: a `.proto` file's text, or a descriptor in Base64.
        references: the names and texts of the schemas that it refers to, each once, and after those that it needs.
    """

    schema_id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...]


def check_size(found: FoundSchema) -> None:
    """Compare the size of a schema's text and of its references with the limits.

    Raises:
        SchemaTooLargeError: if it is larger.
    """
    if len(found.references) > MAX_REFERENCES:
        count = len(found.references)
        raise SchemaTooLargeError(f"it refers to {count} schemas, and at most {MAX_REFERENCES} are allowed")
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in (found.text, *(t for _, t in found.references)))
    if size > MAX_SCHEMA_BYTES:
        raise SchemaTooLargeError(f"its text has {size} bytes, and at most {MAX_SCHEMA_BYTES} are allowed")


class RegistrySettings(BaseModel, frozen=True, extra="forbid"):
    """Where the registry is, and how to talk to it.

    Attributes:
        url: one, or several separated by commas, of which the next is asked where one does not answer.
        client: handed to confluent-kafka's client: `basic.auth.user.info` (USER:PASSWORD), `ssl.ca.location`,
            `ssl.certificate.location`, `ssl.key.location`, `timeout` (seconds), `max.retries`, ...; values may be
            `${file:PATH}`.
    """

    url: str = Field(pattern=r"^https?://[^\s@]+$")
    client: dict[str, Annotated[str | float, Field(union_mode="left_to_right")]] = Field(
        default_factory=dict, repr=False
    )

    @field_validator("client")
    @classmethod
    def _secrets_are_found_anywhere(cls, client: dict[str, str | float]) -> dict[str, str | float]:
        for key, value in client.items():
            if any(not path.startswith("/") for path in SECRET_FILE.findall(str(value))):
                raise ValueError(f"the secret's file of {key} has to be named by an absolute path")
        return client


class PinnedSchema(BaseModel, frozen=True, extra="forbid"):
    """A schema that is fixed: a version of a subject.

    Attributes:
        subject: its name, in which `{topic}` stands for each dataset's own topic. Without it, that of the topic's
            values, `{topic}-value`, or of its keys, `{topic}-key`, where `column` is `key`.
        version: which one.
    """

    subject: str | None = Field(default=None, min_length=1)
    version: int = Field(ge=1)

    @property
    def is_of_topic(self) -> bool:
        """Whether each topic has its own."""
        return self.subject is None or _TOPIC in self.subject

    def subject_of(self, topic: str, column: str) -> str:
        """The subject for what a topic's records have in a column."""
        return usual_subject(topic, column) if self.subject is None else self.subject.replace(_TOPIC, topic)


def usual_subject(topic: str, column: str) -> str:
    """The subject that producers give to a topic's keys or values."""
    return f"{topic}-{'key' if column == 'key' else 'value'}"


class _TooLargeError(Exception):
    """An answer has more bytes than any schema."""


def _read_bounded(response: Any) -> None:
    """Read the body of an answer before the client does, which would take any number of bytes.

    Raises:
        _TooLargeError: if it is larger than `_MOST_BODY_BYTES`, unpacked.
    """
    body = bytearray()
    for block in response.iter_bytes():
        body += block
        if len(body) > _MOST_BODY_BYTES:
            response.close()
            raise _TooLargeError(f"an answer of more than {_MOST_BODY_BYTES:,} bytes")
    response._content = bytes(body)


class Registry:
    """Asks a registry, and keeps what it has answered. A question that was not answered is asked again next time.

    Args:
        settings: where it is.
        todo: what messages tell to correct.
        answer_s: how long it may take to answer a question, with the client's own retries.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        todo: str = "correct the converter's registry",
        answer_s: float = _MOST_ANSWER_S,
    ) -> None:
        self._settings, self._todo, self._answer_s = settings, todo, answer_s
        self._has_schemas = False

    @cached_property
    def _client(self) -> SchemaRegistryClient:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigurationError(
                "the schema registry's client is not installed",
                expected="distcommit[registry], on the driver's machine and on each executor's",
                found=str(error),
                todo="pip install 'distcommit[registry]'",
            ) from error
        client = self._settings.client
        given = {key: with_secret_files(value) if isinstance(value, str) else value for key, value in client.items()}
        try:
            typed = {key: float(value) if key in _NUMBERS else value for key, value in given.items()}
            made = SchemaRegistryClient({**_CLIENT_DEFAULTS, **typed, "url": self._settings.url})
        except (ValueError, TypeError, OSError) as error:
            raise ConfigurationError(
                "the schema registry's client refuses its settings",
                registry=self._settings.url,
                found=self._masked(f"{type(error).__name__}: {error}", given),
                todo=f"{self._todo}.client",
            ) from None

        made._rest_client.session.event_hooks = {"response": [_read_bounded]}
        return made

    def schema(self, schema_id: int) -> FoundSchema:
        """The schema with that id.

        Raises:
            UnknownSchemaError: if there is none.
            ConfigurationError: if the registry refuses this client.
            TransientError: if it does not answer, after the client's own retries.
        """
        return self._found(schema_id, self._ask(lambda client: client.get_schema(schema_id), f"id {schema_id}"))

    def version(self, subject: str, version: int) -> FoundSchema:
        """A version of a subject. Raises as `schema`."""
        found = self._ask(
            lambda client: client.get_version(subject, version), f"version {version} of subject {subject}"
        )
        return self._found(int(found.schema_id), found.schema)

    def latest(self, subject: str) -> FoundSchema:
        """The newest version of a subject. Raises as `schema`."""
        found = self._ask(lambda client: client.get_latest_version(subject), f"subject {subject}")
        return self._found(int(found.schema_id), found.schema)

    def close(self) -> None:
        """Lets go of connections; it may be asked again."""
        client = self.__dict__.pop("_client", None)
        if client is not None:
            client.close()

    def _found(self, schema_id: int, schema: Schema) -> FoundSchema:
        references: dict[str, str] = {}
        self._refer(schema, references, ())
        kind = schema.schema_type or "AVRO"
        return FoundSchema(schema_id, kind, schema.schema_str or "", tuple(references.items()))

    def _refer(self, schema: Schema, found: dict[str, str], above: tuple[tuple[str, int], ...]) -> None:
        for each in schema.references or []:
            key = (str(each.subject), int(each.version or 0))
            if each.name in found or key in above:
                continue
            if len(found) + len(above) >= MAX_REFERENCES:
                raise UnusableSchemaError(f"it refers to more than {MAX_REFERENCES} schemas, the most that are allowed")
            what = f"version {key[1]} of subject {key[0]}, which a schema refers to"
            registered = self._ask(lambda client, key=key: client.get_version(*key), what)
            self._refer(registered.schema, found, (*above, key))
            found[str(each.name)] = registered.schema.schema_str or ""

    def _ask(self, question: Any, what: str) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError  # noqa: PLC0415 - an extra

        client = self._client
        try:
            return within(self._answer_s, lambda: question(client))
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                self._require_schemas(what)
                raise UnknownSchemaError(f"the registry does not know {what}") from None
            if error.http_status_code in _REFUSED:
                raise ConfigurationError(
                    "the schema registry refuses this client",
                    registry=self._settings.url,
                    asked=what,
                    expected="credentials that it knows, with the right to read schemas",
                    found=f"HTTP status {error.http_status_code}",
                    todo=f"{self._todo}.client (basic.auth.user.info)",
                ) from None
            raise self._away(what, str(error)) from None
        except (ConfigurationError, TransientError):
            raise
        except (AnswerTimeError, _TooLargeError) as error:
            raise self._away(what, str(error)) from None
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise self._away(what, f"an answer that is none of a registry ({type(error).__name__})") from None
        except Exception as error:  # noqa: BLE001 - httpx's, whose module has another name in each version of the client
            raise self._away(what, f"{type(error).__name__}: {error}") from None

    def _require_schemas(self, what: str) -> None:
        """Make sure, where something is unknown, that the registry has any schemas at all.

        Raises:
            TransientError: if it is empty: then records are not to blame, and wait until it is filled.
        """
        if self._has_schemas:
            return
        try:
            self._has_schemas = bool(self._client.get_subjects())
        except Exception:  # noqa: BLE001 - such as a client without the right to list subjects
            return
        if not self._has_schemas:
            raise TransientError(
                "the schema registry is empty",
                registry=self._settings.url,
                asked=what,
                expected="the schemas of the producers",
                found="no subject at all",
                todo=f"restore its schemas, or, if it is another registry than that of the producers, {self._todo}",
            )

    def _away(self, what: str, found: str) -> TransientError:
        return TransientError(
            "the schema registry does not answer",
            registry=self._settings.url,
            asked=what,
            expected="an answer, after the client's own retries",
            found=self._masked(found, self._settings.client),
            todo=f"see that it runs, and what stands between; else {self._todo}",
        )

    @staticmethod
    def _masked(text: str, client: Any) -> str:
        for value in sorted((str(value) for value in client.values()), key=len, reverse=True):
            text = text.replace(value, "***") if len(value) > 3 else text
        return text
