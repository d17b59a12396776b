"""The section `alerts` of a job file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from distcommit.core.support.settings_model import SettingError, SettingsModel, checks, rule


class _Hook(SettingsModel):
    """Where alerts are sent.

    Attributes:
        timeout_s: time limit in seconds; after it the hook counts as failed. The run is not affected.
    """

    timeout_s: float = Field(default=30, gt=0, le=600)


class CommandHook(_Hook):
    """A program that gets the alert as JSON on standard input.

    Attributes:
        command: the program and its arguments, as a list.
    """

    command: tuple[str, ...] = Field(min_length=1)


class WebHook(_Hook):
    """A URL that the alert is posted to as JSON.

    Attributes:
        url: the URL. Begins with `https://` or `http://`, or is `${VARIABLE}` or `${file:PATH}` with such a URL as its
            value.
        headers: HTTP headers. Their values may be `${VARIABLE}` or `${file:PATH}`, too.
    """

    url: str
    headers: dict[str, str] = {}

    @checks("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        parts = urlsplit(url)
        if not url.startswith("${file:") and (parts.scheme not in ("http", "https") or not parts.netloc):
            raise SettingError("must begin with http:// or https://, and name a host")
        return url


class EmailHook(_Hook):
    """An SMTP server that gets the alert as e-mail.

    Attributes:
        host: the SMTP server.
        port: its port.
        tls: `starttls`, or `tls` from the first byte on. This machine, or the file in the environment variable
            `SSL_CERT_FILE`, must trust its certificate.
        sender: the sender's address.
        recipients: the recipients' addresses.
        username: for the login; empty for none.
        password: for the login; only with `tls: starttls` or `tls`. May be `${VARIABLE}` or `${file:PATH}`.
    """

    host: str
    port: int = Field(default=25, ge=1, le=65535)
    tls: Literal["none", "starttls", "tls"] = "none"
    sender: str
    recipients: tuple[str, ...] = Field(min_length=1)
    username: str = ""
    password: str = ""

    @rule
    def _password_is_encrypted(self) -> Iterator[SettingError]:
        if self.password and self.tls == "none":
            yield SettingError("must be starttls or tls with a password", "tls", actual="none")


class AlertSettings(SettingsModel):
    """When alerts are sent, and where.

    Attributes:
        after_failed_runs: when so many runs in a row have failed; 0: never.
        on_quarantine: when a run has quarantined a dataset.
        on_loss: when a run has skipped records that the source had deleted before they were read.
        commands: programs to run.
        webhooks: URLs to post to.
        emails: e-mails to send.
    """

    after_failed_runs: int = Field(default=0, ge=0)
    on_quarantine: bool = False
    on_loss: bool = False
    commands: tuple[CommandHook, ...] = ()
    webhooks: tuple[WebHook, ...] = ()
    emails: tuple[EmailHook, ...] = ()

    @property
    def hooks(self) -> tuple[CommandHook | WebHook | EmailHook, ...]:
        return (*self.commands, *self.webhooks, *self.emails)

    @property
    def _has_reason(self) -> bool:
        return bool(self.after_failed_runs) or self.on_quarantine or self.on_loss

    @rule
    def _has_hook_and_reason(self) -> Iterator[SettingError]:
        if self._has_reason and not self.hooks:
            yield SettingError("must have a hook", remedy="set commands, webhooks or emails")
        if self.hooks and not self._has_reason:
            yield SettingError(
                "must have a reason to send alerts", remedy="set after_failed_runs, on_quarantine or on_loss"
            )
