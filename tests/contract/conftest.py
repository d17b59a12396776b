"""Assertion rewriting for the contract suites, so that pytest explains their failures."""

import pytest

pytest.register_assert_rewrite("distcommit.testing.contracts")
