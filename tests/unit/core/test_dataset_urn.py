"""URNs: folder names are injective and safe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.core.dataset_urn import check_urn, folder_of
from distcommit.core.errors import ConfigurationError

urns = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60) | st.text("./_%~aA", min_size=1, max_size=400)


@given(urns, urns)
def test_two_urns_never_share_a_folder(one: str, two: str) -> None:
    assert (folder_of(one) == folder_of(two)) == (one == two)


@given(urns)
def test_folder_name_is_one_safe_path_component(urn: str) -> None:
    name = folder_of(urn)
    assert name.isascii()
    assert len(name) <= 200
    assert "/" not in name
    assert name[0] not in "._"


@pytest.mark.parametrize("urn", ["", "x" * 1025, "\ud800"])
def test_invalid_texts_do_not_name_a_dataset(urn: str) -> None:
    with pytest.raises(ConfigurationError, match="dataset URN is invalid"):
        check_urn(urn)
