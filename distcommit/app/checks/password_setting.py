"""The setting of rejected credentials, and the remedy that names its environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from distcommit.app.job_file.environment_variables import texts_of, variables_in
from distcommit.core.errors import DistcommitError
from distcommit.fs.database_credentials import CREDENTIALS_REJECTED


def set_password_remedy(error: Exception, address: str, tree: Mapping[str, Any]) -> str:
    """Return the key of the setting that the server of `error` rejects, the password or the SASL mechanism, and set the
    remedy of the error. Return "" if `error` is another one.

    Args:
        address: key of the address of the source or sink, in the same section as the password.
        tree: settings of the job file, without values of environment variables.
    """
    if not isinstance(error, DistcommitError) or error.id != CREDENTIALS_REJECTED:
        return ""
    section, _, setting = address.rpartition(".")
    key = f"{section}.password"
    if setting == "brokers":
        is_mechanism = "Unsupported SASL mechanism" in str(error)
        key = f"{section}.client.sasl.{'mechanism' if is_mechanism else 'password'}"
    texts = {".".join(map(str, keys)): text for keys, text in texts_of(tree)}
    named = variables_in(texts.get(key, ""))
    variable = (
        f" (here the variable {named[0]}{'' if os.environ.get(named[0]) else ', which is empty'})" if named else ""
    )
    error.todo = f"set {key}{variable}"
    return key
