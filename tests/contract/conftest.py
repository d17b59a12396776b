"""Lets pytest explain what fails inside the suites."""

import pytest

pytest.register_assert_rewrite("distcommit.testing.contracts")
