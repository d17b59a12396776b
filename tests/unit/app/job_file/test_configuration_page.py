"""conf/configuration.md is what the classes that read a job file say."""

from __future__ import annotations

import re

import pytest

from distcommit.app.job_file.built_in import Section, settings_class, types_of
from tests.unit.app.job_file.configuration_page import PAGE, meanings, page, rows

SECTIONS: tuple[Section, ...] = ("source", "sink", "converter", "row_checker", "task_checker", "fork")


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "python -m tests.unit.app.job_file.configuration_page writes it anew"
    )


ALL = [(section, name) for section in SECTIONS for name in types_of(section)]


@pytest.mark.parametrize(("section", "name"), ALL)
def test_each_setting_of_a_type_is_explained(section: Section, name: str) -> None:
    found = settings_class(section, name)
    text = found.__doc__ or ""
    for row in rows(found):
        alone = row.setting in ("column", "columns")  # of constructs: what it does says it
        assert row.meaning or alone or f"`{row.setting}`" in text, row.setting


@pytest.mark.parametrize(("section", "name"), ALL)
def test_what_is_explained_is_a_setting(section: Section, name: str) -> None:
    found = settings_class(section, name)
    fields = {field.alias or key for key, field in found.model_fields.items()} | set(found.model_fields)
    of_class = {name for name in meanings(found) if hasattr(found, name)}
    assert set(meanings(found)) - of_class <= fields


def test_each_setting_of_the_job_is_explained() -> None:
    job = PAGE.read_text(encoding="utf-8").partition("## The job\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\S+)` \| .* \| (.*) \|$", job, re.MULTILINE)
    assert len(listed) > 40
    assert [setting for setting, meaning in listed if not meaning] == []
