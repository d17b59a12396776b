"""Whom to tell what of runs, as the job file says it."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Hook(_Settings):
    """Whom to tell.

    Attributes:
        timeout_s: how long it may take; then it counts as failed, which changes nothing of the run.
    """

    timeout_s: float = Field(default=30, gt=0, le=600)


class CommandHook(_Hook):
    """A program that is given the alert as JSON on its standard input.

    Attributes:
        command: the program and its arguments, as a list.
    """

    command: tuple[str, ...] = Field(min_length=1)


class WebHook(_Hook):
    """A URL that the alert is posted to as JSON.

    Attributes:
        url: `https://...` or `http://...`, `${VARIABLE}` or `${file:PATH}`.
        headers: sent with it; values as the URL.
    """

    url: str
    headers: dict[str, str] = {}

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if not url.startswith("${") and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc):
            raise ValueError("a web hook's URL begins with http:// or https://, and names a host")
        return url


class EmailHook(_Hook):
    """A server that is given the alert as e-mail.

    Attributes:
        host: the SMTP server.
        port: its port.
        tls: `starttls`, or `tls` from the first byte on. Its certificate has to be one that this machine trusts, or
            the environment variable `SSL_CERT_FILE` names.
        sender: the address that it is from.
        recipients: the addresses that it is for.
        username: to log in with; empty: without.
        password: its password; with `tls: starttls` or `tls` only. `${VARIABLE}` or `${file:PATH}`.
    """

    host: str
    port: int = Field(default=25, ge=1, le=65535)
    tls: Literal["none", "starttls", "tls"] = "none"
    sender: str
    recipients: tuple[str, ...] = Field(min_length=1)
    username: str = ""
    password: str = ""

    @model_validator(mode="after")
    def _password_is_hidden(self) -> EmailHook:
        if self.password and self.tls == "none":
            raise ValueError("a password goes with tls: starttls or tls only")
        return self


class AlertSettings(_Settings):
    """When somebody is told, and how.

    Attributes:
        after_failed_runs: once so many runs in a row have failed; 0: never.
        on_quarantine: when a run has quarantined a dataset.
        on_loss: when a run has passed over records that the source had deleted before they were read.
        commands: programs to run.
        webhooks: URLs to post to.
        emails: mail to send.
    """

    after_failed_runs: int = Field(default=0, ge=0)
    on_quarantine: bool = False
    on_loss: bool = False
    commands: tuple[CommandHook, ...] = ()
    webhooks: tuple[WebHook, ...] = ()
    emails: tuple[EmailHook, ...] = ()

    @property
    def hooks(self) -> tuple[CommandHook | WebHook | EmailHook, ...]:
        """All of them."""
        return (*self.commands, *self.webhooks, *self.emails)

    @property
    def _has_reason(self) -> bool:
        return bool(self.after_failed_runs) or self.on_quarantine or self.on_loss

    @model_validator(mode="after")
    def _somebody_is_told(self) -> AlertSettings:
        if self._has_reason and not self.hooks:
            raise ValueError("nobody is told: name commands, webhooks or emails")
        if self.hooks and not self._has_reason:
            raise ValueError("nothing is told: set after_failed_runs, on_quarantine or on_loss")
        return self
