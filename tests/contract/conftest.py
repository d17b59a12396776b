"""Lets pytest explain what fails inside the suites."""

import pytest

for name in ("conformance", "file_system_contract", "object_store_contract", "sink_contract", "source_contract"):
    pytest.register_assert_rewrite(f"distcommit.testing.{name}")
