"""Lets pytest explain what fails inside what these tests share."""

import pytest

pytest.register_assert_rewrite("tests.unit.sinks.attempts", "tests.unit.engine.situations")
