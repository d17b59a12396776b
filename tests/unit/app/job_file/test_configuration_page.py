"""conf/docs/reference/configuration.md agrees with the classes that read a job file."""

from __future__ import annotations

import re

import pytest

from distcommit.app.job_file.built_in_types import Section, settings_class, types_of
from tests.unit.app.job_file.configuration_page import PAGE, meanings, page, rows

SECTIONS: tuple[Section, ...] = ("source", "sink", "converter", "row_checker", "task_checker", "fork")


def test_configuration_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run python -m tests.unit.app.job_file.configuration_page to update the page"
    )


ALL = [(section, name) for section in SECTIONS for name in types_of(section)]


@pytest.mark.parametrize(("section", "name"), ALL)
def test_each_setting_of_a_type_has_a_meaning(section: Section, name: str) -> None:
    settings = settings_class(section, name)
    text = settings.__doc__ or ""
    for row in rows(settings):
        alone = row.setting in ("column", "columns")  # the description of a construct explains its columns
        assert row.meaning or alone or f"`{row.setting}`" in text, row.setting


@pytest.mark.parametrize(("section", "name"), ALL)
def test_each_documented_attribute_is_a_setting(section: Section, name: str) -> None:
    settings = settings_class(section, name)
    fields = {field.alias or key for key, field in settings.model_fields.items()} | set(settings.model_fields)
    of_class = {name for name in meanings(settings) if hasattr(settings, name)}
    assert set(meanings(settings)) - of_class <= fields


def test_each_setting_of_the_job_has_a_meaning() -> None:
    job = PAGE.read_text(encoding="utf-8").partition("## The job\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\S+)` \| .* \| (.*) \|$", job, re.MULTILINE)
    assert len(listed) > 40
    assert [setting for setting, meaning in listed if not meaning] == []
